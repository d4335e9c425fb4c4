"""A traced loss is never older than what it reads: that is watched, or the loss is not traced."""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from maze_pl.modules import A2C, IMPALA, PPO
from maze_pl.modules.optimization.code_origin import WITHOUT_STATE
from maze_pl.modules.optimization.reads import LossObservation
from tests.modules.optimization.keepers import (
    FOLLOWED,
    REFUSED,
    Array,
    Closure,
    Delegating,
    Dynamic,
    Global,
    Number,
    Plain,
    Replaced,
    Slots,
    Written,
    flat,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def holding(keeper: Any, moment: str = "epoch", algorithm: Any = PPO) -> Any:
    """An algorithm whose loss is multiplied by what a helper keeps, which changes at certain moments."""

    class Annealed(algorithm):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._helper, self._n_changes = keeper(), 0
            self._helper.set(1.0)

        def loss(self, minibatch: Any) -> Tensor:
            return super().loss(minibatch) * self._helper.get()

        def change(self, now: str) -> None:
            if now == moment:
                self._n_changes += 1
                self._helper.set(0.5 ** (self._n_changes // 2))

        def on_train_epoch_start(self) -> None:
            super().on_train_epoch_start()
            self.change("epoch")

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            super().on_train_batch_start(batch, batch_idx)
            self.change("batch")

        def gradient_step(self, loss: Any, minibatch: Any = None, **options: Any) -> None:
            super().gradient_step(loss, minibatch, **options)
            self.change("update")

    return Annealed


def trained(kit: SimpleNamespace, kind: Any, capture: str, epochs: int = 3, **options: Any) -> Any:
    torch.manual_seed(1)
    sizes = {"batch_size": 20, "n_optimization_epochs": 2} if issubclass(kind, PPO) else {}
    module = kind(actor_critic=kit.make_actor_critic(), lr=1e-2, max_grad_norm=0.5, capture=capture, **sizes, **options)
    kit.fit(module, epochs=epochs)
    return module


def same(kit: SimpleNamespace, kind: Any, **options: Any) -> Any:
    """Train with and without recording, compare bit by bit; returns the algorithm that recorded."""
    ours, theirs = (trained(kit, kind, capture, **options) for capture in ("auto", "off"))
    assert torch.equal(flat(ours), flat(theirs))
    return ours


class Loss(pl.LightningModule):
    """Has a loss that multiplies by what a helper keeps."""

    def __init__(self, helper: Any) -> None:
        super().__init__()
        self.layer, self._helper = nn.Linear(2, 1), helper

    def loss(self, minibatch: Any) -> Tensor:
        return torch.as_tensor(self.layer(minibatch).mean() * self._helper.get())


def observe(module: Any) -> LossObservation:
    minibatch = torch.ones(3, 2)
    observation = LossObservation(module, [], [pl.LightningModule.log.__code__], [minibatch])
    loss = module.loss
    observation.run(lambda: loss(minibatch))
    return observation


def observe_gradient(module: Any) -> LossObservation:
    minibatch = torch.ones(3, 2)
    observation = LossObservation(module, [], [], [minibatch])
    parameters, loss = list(module.parameters()), module.loss
    observation.run(lambda: torch.autograd.grad(loss(minibatch), parameters))
    return observation


@pytest.mark.parametrize("keeper", FOLLOWED)
def test_changes_of_what_can_be_followed_are_noticed(keeper: Any) -> None:
    helper = keeper()
    helper.set(1.0)
    observation = observe(Loss(helper))
    assert observation.refused is None
    assert observation.watch.change() is None
    helper.set(0.5)
    if keeper is Written:
        assert observation.watch.change() is None, "a record sees what is written into a tensor"
    else:
        assert observation.watch.change() is not None
    helper.set(1.0)


def test_a_network_may_run_with_the_tensors_of_a_target_network_for_a_while() -> None:
    class Following(Loss):
        def __init__(self) -> None:
            super().__init__(Plain())
            self.target = nn.ParameterDict({"weight": torch.ones(1, 2), "bias": torch.ones(1)})

        def loss(self, minibatch: Any) -> Tensor:
            later = torch.func.functional_call(self.layer, dict(self.target.items()), (minibatch,))
            return (self.layer(minibatch) - later).square().mean()

    module = Following()
    observation = observe(module)
    assert observation.refused is None
    module.layer.weight = nn.Parameter(torch.zeros(1, 2))
    assert observation.watch.change() is not None


@pytest.mark.parametrize("keeper", REFUSED)
def test_state_that_cannot_be_watched_is_refused(keeper: Any) -> None:
    observation = observe(Loss(keeper()))
    assert observation.refused is not None


class Impure:
    """A helper that reads what is not an attribute of anything."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._count, self._powers = itertools.count(), (0.5**power for power in itertools.count())
        self._random, self._generator = random.Random(1), np.random.default_rng(1)

    def get(self) -> Any:
        return self._read()

    def counter(self) -> float:
        return float(next(self._count))

    def generator(self) -> float:
        return next(self._powers)

    def own_random(self) -> float:
        return self._random.random()

    def own_generator(self) -> float:
        return float(self._generator.random())

    def file(self) -> float:
        with open(__file__, encoding="utf-8") as file:
            return float(len(file.readline()))

    def new_generator(self) -> float:
        return float(np.random.default_rng().random())

    def shown(self) -> float:
        print("loss")
        return 1.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("counter", "itertools.count, whose changes cannot be noticed"),
        ("generator", "generator, whose changes cannot be noticed"),
        ("own_random", "random.Random, whose changes cannot be noticed"),
        ("own_generator", "Generator, whose changes cannot be noticed"),
        ("file", "uses open"),
        ("new_generator", "uses numpy.random"),
        ("shown", "uses print"),
    ],
)
def test_what_is_no_state_is_refused_by_name(name: str, reason: str) -> None:
    helper = Impure(lambda: 1.0)
    helper._read = getattr(helper, name)
    observation = observe(Loss(helper))
    assert observation.refused is not None and reason in observation.refused


@pytest.mark.parametrize("read", [lambda: time.perf_counter(), lambda: random.random(), lambda: np.random.rand()])
def test_clocks_and_global_generators_are_refused(read: Any) -> None:
    assert observe(Loss(Impure(read))).refused is not None


def test_a_schedule_of_torch_is_followed() -> None:
    module = Loss(Plain())
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for read in (lambda: schedule.get_last_lr()[0], lambda: optimizer.param_groups[0]["lr"]):
        module._helper.get = read
        observation = observe(module)
        assert observation.refused is None and observation.watch.change() is None
        optimizer.step()
        schedule.step()
        assert observation.watch.change() is not None


def test_a_layer_that_is_changed_by_hand_is_noticed() -> None:
    module = Loss(Plain())
    module.layer = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    for change in (
        lambda: setattr(module.layer[1], "p", 0.1),
        lambda: module.layer[1].eval(),
        lambda: module.layer[0].register_forward_hook(lambda *_: None),
        lambda: setattr(module.layer[2], "bias", nn.Parameter(torch.ones(1))),
        lambda: module.layer.append(nn.Tanh()),
    ):
        observation = observe(module)
        assert observation.refused is None and observation.watch.change() is None
        change()
        assert observation.watch.change() is not None


@pytest.mark.filterwarnings("ignore:You are trying to `self.log")
def test_what_is_logged_in_a_loss_is_not_traced() -> None:
    class Logging(Loss):
        def loss(self, minibatch: Any) -> Tensor:
            self.log("loss", 1.0)
            return super().loss(minibatch)

    module = Logging(Plain())
    assert "calls LightningModule.log" in str(observe(module).refused)


class OfClass(Loss):
    """Counts its calls by an attribute that only the class has at first."""

    n_calls = 0

    def loss(self, minibatch: Any) -> Tensor:
        self.n_calls += 1
        return super().loss(minibatch)


class OfHelper(Loss):
    """Keeps its last value in a helper, which has no such attribute at first."""

    def loss(self, minibatch: Any) -> Tensor:
        total = super().loss(minibatch)
        self._helper.latest = total.detach()
        return total


@pytest.mark.parametrize(("module", "name"), [(OfClass, "OfClass.n_calls"), (OfHelper, "Plain.latest")])
def test_a_loss_that_adds_attributes_is_refused(module: Any, name: str) -> None:
    assert observe(module(Plain())).refused == f"computing the loss adds the attribute {name}"


def test_a_cached_property_is_not_an_added_attribute() -> None:
    class Caching(Loss):
        @functools.cached_property
        def factor(self) -> float:
            return 0.5

        def loss(self, minibatch: Any) -> Tensor:
            return super().loss(minibatch) * self.factor

    assert observe(Caching(Plain())).refused is None


def test_what_a_distribution_computes_once_is_not_an_added_attribute() -> None:
    class Weighted(Loss):
        """Uses a distribution, whose probabilities torch computes when they are first read."""

        def __init__(self, helper: Any) -> None:
            super().__init__(helper)
            self.prior = Categorical(logits=torch.tensor([0.0, 1.0]))

        def loss(self, minibatch: Any) -> Tensor:
            return super().loss(minibatch) * self.prior.entropy()

    module = Weighted(Plain())
    assert observe(module).refused is None and "probs" in vars(module.prior)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_anomaly_detection_is_named_as_the_reason() -> None:
    with torch.autograd.detect_anomaly():
        reason = observe_gradient(Loss(Plain())).refused
    assert str(reason).startswith("anomaly detection (detect_anomaly=True)")


def test_an_equal_number_is_no_change() -> None:
    helper = Plain()
    helper.set(float("1.5"))
    observation = observe(Loss(helper))
    helper.set(float("1.5"))
    assert observation.watch.change() is None
    helper.set(2.5)
    assert observation.watch.change() == "Loss._helper.value changed from 1.5 to 2.5"


# ------------------------------------------------------------------------------------------------------- in training


@pytest.mark.slow
@pytest.mark.parametrize(
    "keeper", [Plain, Slots, Dynamic, Array, Written, Replaced, Global, Closure, Delegating, Number]
)
def test_annealing_learns_what_autograd_learns(kit: SimpleNamespace, keeper: Any) -> None:
    module = same(kit, holding(keeper))
    assert (module.capture_refusal is None) == (keeper in FOLLOWED)
    assert (module.n_traces > 0) == (keeper in FOLLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["batch", "update"])
@pytest.mark.parametrize("algorithm", [PPO, A2C, IMPALA])
def test_changes_are_noticed_at_the_very_next_update(kit: SimpleNamespace, moment: str, algorithm: Any) -> None:
    module = same(kit, holding(Plain, moment, algorithm), epochs=6)
    assert "value changed from" in module.capture_refusal
    assert "in a buffer (register_buffer), which is changed in place" in module.capture_refusal


READS: dict[str, Callable[[Any], Any]] = {
    "global_step": lambda module: 1.0 / (1 + module.global_step),
    "trainer": lambda module: 1.0 / (1 + module.trainer.global_step),
    "epoch": lambda module: 1.0 / (1 + module.trainer.current_epoch),
    "current_epoch": lambda module: 1.0 / (1 + module.current_epoch),
    "env_steps": lambda module: 100.0 / (100 + module.env_steps),
    "evaluation": lambda module: 1.0 / (1 + float(module.trainer.callback_metrics.get("eval/return", 0.0))),
    "rate": lambda module: module.trainer.optimizers[0].param_groups[0]["lr"] * 100,
    "statistics": lambda module: 1.0 / (1 + len(module.epoch_statistics)),
}


def reading(name: str, algorithm: Any = PPO) -> Any:
    class Reading(algorithm):  # type: ignore[misc]
        def loss(self, minibatch: Any) -> Tensor:
            return super().loss(minibatch) * READS[name](self)

    return Reading


@pytest.mark.slow
@pytest.mark.parametrize("name", ["global_step", "current_epoch"])
def test_counters_of_training_are_followed(kit: SimpleNamespace, name: str) -> None:
    same(kit, reading(name), epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_all_that_training_counts_is_followed(kit: SimpleNamespace, name: str) -> None:
    same(kit, reading(name), lr_schedule="linear")


def test_a_loss_that_counts_is_computed_once_for_each_step(kit: SimpleNamespace) -> None:
    class Counting(PPO):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._n_losses = 0

        def loss(self, minibatch: Any) -> Tensor:
            self._n_losses += 1
            return super().loss(minibatch) / self._n_losses

    module = same(kit, Counting, epochs=1)
    assert module._n_losses == 2 * 2 * 2
    assert "computing the loss changes what it reads: Counting._n_losses" in module.capture_refusal


def test_a_loss_that_counts_from_an_attribute_of_its_class_learns_what_autograd_learns(kit: SimpleNamespace) -> None:
    class Counting(PPO):
        n_losses = 0

        def loss(self, minibatch: Any) -> Tensor:
            self.n_losses += 1
            return super().loss(minibatch) / self.n_losses

    module = same(kit, Counting, epochs=1)
    assert module.n_losses == 2 * 2 * 2
    assert module.capture_refusal == "computing the loss adds the attribute Counting.n_losses"


def test_a_loss_that_changes_its_minibatch_in_place_learns_what_autograd_learns(kit: SimpleNamespace) -> None:
    class Scaling(PPO):
        def loss(self, minibatch: Any) -> Tensor:
            for acts in minibatch.values():
                acts.observation["observation"].mul_(0.5)
            return super().loss(minibatch)

    module = same(kit, Scaling, epochs=1)
    assert "changes its minibatch in place, observation 'observation' of step key 0" in module.capture_refusal


def test_statistics_of_a_batch_normalisation_move_once_for_each_step(kit: SimpleNamespace) -> None:
    class Normalising(PPO):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.norm = nn.BatchNorm1d(3)

        def loss(self, minibatch: Any) -> Tensor:
            (acts,) = minibatch.values()
            return super().loss(minibatch) + 0.01 * self.norm(acts.observation["observation"]).square().mean()

    module = same(kit, Normalising, epochs=1)
    assert int(module.norm.num_batches_tracked) == 2 * 2 * 2


def test_a_loss_that_is_no_method_is_not_traced(kit: SimpleNamespace) -> None:
    class Weighted(PPO):
        n_steps = 0

        def gradient_step(self, loss: Any, minibatch: Any = None, **options: Any) -> None:
            self.n_steps += 1
            weight = 1.0 / self.n_steps
            super().gradient_step(lambda minibatch: self.loss(minibatch) * weight, minibatch, **options)

    module = same(kit, Weighted, epochs=1)
    assert module.capture_refusal == "the loss is not a method of Weighted"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PPO, A2C, IMPALA])
def test_a_callback_that_changes_the_networks_is_noticed_at_the_next_batch(
    kit: SimpleNamespace, algorithm: Any
) -> None:
    class Lower(pl.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            for part in pl_module.networks.modules():
                if isinstance(part, nn.Dropout):
                    part.p = 0.5 if trainer.global_step % 3 else 0.0

    results = []
    for capture in ("auto", "off"):
        torch.manual_seed(1)
        sizes = {"batch_size": 20} if algorithm is PPO else {}
        module = algorithm(actor_critic=kit.make_actor_critic(dropout=0.5), lr=1e-2, capture=capture, **sizes)
        kit.fit(module, epochs=2, length=3, callbacks=[Lower()])
        results.append(flat(module))
    assert torch.equal(*results)


@pytest.mark.parametrize("algorithm", [PPO, A2C, IMPALA])
def test_shipped_losses_are_traced_and_cost_little_to_watch(kit: SimpleNamespace, algorithm: Any) -> None:
    module = trained(kit, algorithm, "auto", epochs=2)
    losses = module._gradient_steps.traced_losses
    assert module.capture_refusal is None and module.n_traces == 1
    (traced,) = losses._traced.values()
    assert traced.made == 1 and traced.verified == losses._batch and not traced.watch.moves
    assert traced.watch.change() is None
    assert traced.watch._is_same(), "comparing takes the short way"


def test_files_that_need_no_observation_are_where_they_are_expected() -> None:
    files = [Path(file) for file in WITHOUT_STATE if not file.startswith("<")]
    assert [str(file) for file in files if not file.exists()] == []
