"""A traced loss is never older than what it reads: that is watched, or the loss is not traced."""

from __future__ import annotations

import functools
import itertools
import operator
import random
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.modules import A2C, IMPALA, PPO
from maze_pl.modules.optimization.code_origin import WITHOUT_STATE
from maze_pl.modules.optimization.reads import Observation

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

FACTOR = 1.0
SETTINGS = {"factor": 1.0}


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


# ---------------------------------------------------------------------------------------------- ways to keep a number


class Plain:
    """A helper with an attribute."""

    def __init__(self) -> None:
        self.value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value


class Slots:
    """A helper without a dictionary."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value


class Dynamic:
    """A helper whose attributes do not exist."""

    def __init__(self) -> None:
        self._all = {"value": 1.0}

    def __getattr__(self, name: str) -> float:
        return self._all[name]

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self._all["value"] = value


class Delegating(Dynamic):
    """A helper that looks its attributes up in another object, by names that it computes."""

    def __init__(self) -> None:
        self._inner = Plain()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set(self, value: float) -> None:
        self._inner.value = value


class Nested:
    """A property that gives an object, of which an attribute is read."""

    def __init__(self) -> None:
        self._hidden = Plain()

    @property
    def schedule(self) -> Plain:
        return self._hidden

    def get(self) -> float:
        return self.schedule.value

    def set(self, value: float) -> None:
        self._hidden.value = value


class Entry:
    """An entry of a dictionary in a list."""

    def __init__(self) -> None:
        self._all = [{"value": 1.0}]

    def get(self) -> float:
        return self._all[0]["value"]

    def set(self, value: float) -> None:
        self._all[0]["value"] = value


class Array:
    """A NumPy array that is written into."""

    def __init__(self) -> None:
        self._all = np.ones(3)

    def get(self) -> float:
        return float(self._all.mean())

    def set(self, value: float) -> None:
        self._all[:] = value


class Field(NamedTuple):
    """An entry of a named tuple."""

    value: float


class Named(Plain):
    """A field of a named tuple that another one takes the place of."""

    def __init__(self) -> None:
        self._all = Field(1.0)

    def get(self) -> float:
        return self._all.value

    def set(self, value: float) -> None:
        self._all = Field(value)


class Scalar(Plain):
    """A NumPy number."""

    def set(self, value: float) -> None:
        self.value = np.float64(value)


class Written:
    """A tensor that is written into."""

    def __init__(self) -> None:
        self._tensor = torch.ones(())

    def get(self) -> Any:
        return self._tensor

    def set(self, value: float) -> None:
        self._tensor.fill_(value)


class Replaced(Written):
    """A tensor in place of another one."""

    def set(self, value: float) -> None:
        self._tensor = torch.tensor(value)


class Number(Written):
    """A number out of a tensor."""

    def get(self) -> float:
        return float(self._tensor)


class Listed(Written):
    """A number out of a tensor, by way of a list."""

    def get(self) -> Any:
        return self._tensor.reshape(1).tolist()[0]


class Converted(Written):
    """A number out of a tensor, by way of NumPy."""

    def get(self) -> Any:
        return np.asarray(self._tensor).item()


class Closure:
    """A variable of a function."""

    def __init__(self) -> None:
        value = 1.0

        def get() -> float:
            return value

        def set_(new: float) -> None:
            nonlocal value
            value = new

        self.get, self.set = get, set_


class Global:
    """A global."""

    def get(self) -> float:
        return FACTOR

    def set(self, value: float) -> None:
        global FACTOR
        FACTOR = value


class GlobalEntry:
    """An entry of a global dictionary."""

    def get(self) -> float:
        return SETTINGS["factor"]

    def set(self, value: float) -> None:
        SETTINGS["factor"] = value


class OfClass:
    """An attribute of a class."""

    value = 1.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        type(self).value = value


class Descriptor:
    """A descriptor that keeps its values by itself."""

    class Kept:
        def __init__(self) -> None:
            self.values: dict[str, float] = {}

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.values.get("value", 1.0)

    value = Kept()

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        vars(type(self))["value"].values["value"] = value


class Constant:
    """A constant name given to getattr."""

    def __init__(self) -> None:
        self._value = 1.0

    def get(self) -> float:
        return float(getattr(self, "_value"))  # noqa: B009

    def set(self, value: float) -> None:
        self._value = value


class Computed(Constant):
    """A computed name given to getattr."""

    def get(self) -> float:
        return float(getattr(self, "_" + "value".lower()))


class Dictionary(Constant):
    """The dictionary of an object."""

    def get(self) -> float:
        return float(vars(self)["_value"])


class Getter(Constant):
    """A function in C that reads an attribute."""

    read = operator.attrgetter("_value")

    def get(self) -> float:
        return float(type(self).read(self))


class Partial(Plain):
    """A function with arguments that are bound."""

    def __init__(self) -> None:
        super().__init__()
        self._read = functools.partial(operator.mul, 1.0)

    def get(self) -> float:
        return float(self._read(1.0))

    def set(self, value: float) -> None:
        self._read = functools.partial(operator.mul, value)


class Weak(Plain):
    """A weak reference."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = Plain()
        self._weak = weakref.ref(self._kept)

    def get(self) -> float:
        kept = self._weak()
        assert kept is not None
        return kept.value

    def set(self, value: float) -> None:
        self._kept.value = value


class Switched(Plain):
    """A method that another one takes the place of."""

    def get(self) -> float:
        return self.compute()

    def compute(self) -> float:
        return 1.0

    def set(self, value: float) -> None:
        self.compute = lambda: value  # type: ignore[method-assign]


class Default:
    """A list that is the default of an argument."""

    def get(self, values: list[float] = [1.0]) -> float:  # noqa: B006
        return values[0]

    def set(self, value: float) -> None:
        (values,) = type(self).get.__defaults__ or ()
        values[0] = value


class Passed(Plain):
    """An object in an object that is made anew for each loss."""

    def __init__(self) -> None:
        self._inner = Plain()

    def get(self) -> float:
        return read_of(SimpleContext(self._inner))

    def set(self, value: float) -> None:
        self._inner.value = value


class SimpleContext:
    def __init__(self, inner: Plain) -> None:
        self.inner = inner


def read_of(context: SimpleContext) -> float:
    return context.inner.value


class Cached(Plain):
    """A function whose results are kept, of an argument that changes."""

    @staticmethod
    @functools.lru_cache
    def double(value: float) -> float:
        return 2 * value

    def get(self) -> float:
        return self.double(self.value)


FOLLOWED = [
    *(Plain, Slots, Dynamic, Nested, Entry, Array, Scalar, Written, Replaced, Closure, Global, GlobalEntry, OfClass),
    *(Named, Descriptor, Constant, Partial, Switched, Default, Passed, Cached),
]
REFUSED = [Delegating, Number, Listed, Converted, Computed, Dictionary, Getter, Weak]


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


def observe(module: Any) -> Observation:
    minibatch = torch.ones(3, 2)
    observation = Observation(module, [], [pl.LightningModule.log.__code__], [minibatch])
    loss = module.loss
    observation.run(lambda: loss(minibatch))
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
def test_what_cannot_be_followed_is_refused(keeper: Any) -> None:
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
    assert (module._gradient_steps.traced_losses.n_made > 0) == (keeper in FOLLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["batch", "update"])
@pytest.mark.parametrize("algorithm", [PPO, A2C, IMPALA])
def test_changes_are_noticed_at_the_very_next_update(kit: SimpleNamespace, moment: str, algorithm: Any) -> None:
    module = same(kit, holding(Plain, moment, algorithm), epochs=6)
    assert "value changed from" in module.capture_refusal


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
    assert module.capture_refusal is None and losses.n_made == 1
    (traced,) = losses._traced.values()
    assert traced.made == 1 and traced.verified == losses._batch and not traced.watch.moves
    assert traced.watch.change() is None
    assert traced.watch._is_same(), "comparing takes the short way"


def test_files_that_need_no_observation_are_where_they_are_expected() -> None:
    files = [Path(file) for file in WITHOUT_STATE if not file.startswith("<")]
    assert [str(file) for file in files if not file.exists()] == []
