"""Optimisers, parameter groups and frozen parts as options of algorithms: their effect, resuming, and refusals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.core.population import NoiseTable, PopulationBatch
from maze_pl.modules import A2C, BC, ES, PPO, FlatAdam, FlatSGD, ParameterGroup
from maze_pl.schedules import Linear
from tests.exact.comparison import differences
from tests.modules.kit import FLAT_SPEC, KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

FIRST, LAST = "policy.networks.*.body.0.*", "policy.networks.*.body.3.*"


class Halved(Adam):
    """An optimiser of a user's, which takes half steps."""

    def step(self, closure: Any = None) -> Any:
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] = group["lr"] / 2
        result = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return result


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def make(kind: Any = PPO, **options: Any) -> Any:
    own = {"batch_size": 20, "n_optimization_epochs": 2} if issubclass(kind, PPO) else {}
    given = {"actor_critic": KIT.make_actor_critic(), "lr": 0.01, **own, **options}
    return kind(**given)


def trained(kind: Any = PPO, epochs: int = 2, **options: Any) -> Any:
    torch.manual_seed(1)
    module = make(kind, **options)
    KIT.fit(module, epochs=epochs, length=2)
    return module


def layer(module: Any, index: int) -> Tensor:
    return flat(module.policy.networks[0][0].body[index])


# ---------------------------------------------------------------------------------------------------- optimisers


@pytest.mark.parametrize(
    ("optimizer", "kind", "options"),
    [
        ("adam", FlatAdam, {}),
        ("sgd", FlatSGD, {"momentum": 0.9}),
        (partial(Adam, eps=1e-5), FlatAdam, {"eps": 1e-5, "decoupled_weight_decay": False}),
        (partial(AdamW, weight_decay=0.1), FlatAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
        (partial(SGD, momentum=0.5, nesterov=True), FlatSGD, {"momentum": 0.5, "nesterov": True}),
        (partial(RMSprop, alpha=0.9), RMSprop, {"alpha": 0.9}),
        (Halved, Halved, {}),
    ],
)
def test_options_describe_the_optimiser(optimizer: Any, kind: type, options: dict[str, Any]) -> None:
    made = make(optimizer=optimizer).configure_optimizers()
    assert type(made) is kind
    assert [group["name"] for group in made.param_groups] == ["policy", "critic"]
    for group in made.param_groups:
        assert group["lr"] == 0.01
        assert {name: group[name] for name in options} == options


class OfTorch(PPO):
    """PPO whose optimiser is made by hand."""

    factory: Any = None

    def configure_optimizers(self) -> Any:
        return type(self).factory(self.parameters(), lr=0.01)


@pytest.mark.parametrize(
    "factory", [partial(SGD, momentum=0.9), partial(AdamW, weight_decay=0.3), RMSprop, partial(Halved, eps=1e-6)]
)
@pytest.mark.slow
def test_updates_are_those_of_the_optimiser_of_torch_traced_or_not(factory: Any) -> None:
    by_hand = trained(type("ByHand", (OfTorch,), {"factory": staticmethod(factory)}), capture="off", max_grad_norm=0.5)
    traced = trained(optimizer=factory, max_grad_norm=0.5)
    eager = trained(optimizer=factory, max_grad_norm=0.5, capture="off")
    assert traced.capture_refusal is None and traced.n_traces > 0
    torch.testing.assert_close(flat(eager), flat(by_hand), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flat(traced), flat(by_hand), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(flat(by_hand), flat(trained(max_grad_norm=0.5)), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", RMSprop])
def test_the_learning_rate_follows_its_schedule_and_may_be_zero(optimizer: Any) -> None:
    rates: list[list[float]] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            rates.append([group["lr"] for group in trainer.optimizers[0].param_groups])
            weights.append(flat(pl_module))

    weights: list[Tensor] = []
    module = make(optimizer=optimizer, lr=lambda progress: 0.1 * progress, critic_burn_in_epochs=1)
    before, policy = flat(module), flat(module.policy)
    KIT.fit(module, epochs=2, length=2, callbacks=[Watch()])
    assert [rate for pair in rates for rate in pair] == pytest.approx([0.0, 0.0, 0.0, 0.025, 0.05, 0.05, 0.075, 0.075])
    assert torch.equal(weights[0], before)
    assert not torch.equal(weights[1], before) and torch.equal(weights[1][: len(policy)], policy)


# ------------------------------------------------------------------------------------------------ parameter groups


@pytest.mark.parametrize("optimizer", ["adam", "sgd", RMSprop])
def test_parameters_of_a_pattern_have_their_own_learning_rate(optimizer: Any) -> None:
    groups = {FIRST: ParameterGroup(lr=1e-6), LAST: ParameterGroup(lr=Linear(0.02, 0.0))}
    start, module = make(), trained(optimizer=optimizer, optimizer_groups=groups, lr_schedule="linear")
    moved = [float((layer(module, index) - layer(start, index)).abs().max()) for index in (0, 3)]
    assert 0.0 < moved[0] < 1e-4 < 1e-3 < moved[1]
    table = module.epoch_statistics["train"]
    logged = {
        name: table[f"ActorCriticEvents/learning_rate{name}"] for name in ("", f"_policy {FIRST}", f"_policy {LAST}")
    }
    share = (0.5 + 0.25) / 2  # of the last two of four batches
    assert logged == pytest.approx(
        {"": 0.01 * share, f"_policy {FIRST}": 1e-6 * share, f"_policy {LAST}": 0.02 * share}
    )


def test_a_pattern_has_its_own_options_and_burn_in_holds_for_it() -> None:
    groups = {"*.bias": ParameterGroup(weight_decay=0.0), FIRST: ParameterGroup(options={"eps": 1e-3})}
    options: dict[str, Any] = {"optimizer": partial(AdamW, weight_decay=0.5), "optimizer_groups": groups}
    optimizer = make(**options).configure_optimizers()
    made = {
        group["name"]: (group["weight_decay"], group["eps"], len(group["params"])) for group in optimizer.param_groups
    }
    assert made == {
        "policy": (0.5, 1e-8, 1),
        "policy *.bias": (0.0, 1e-8, 2),
        f"policy {FIRST}": (0.5, 1e-3, 1),
        "critic": (0.5, 1e-8, 2),
        "critic *.bias": (0.0, 1e-8, 2),
    }
    burnt = trained(critic_burn_in_epochs=2, **options)
    assert torch.equal(flat(burnt.policy), flat(make().policy))
    assert not torch.equal(flat(burnt), flat(make()))


@pytest.mark.slow
def test_groups_change_only_what_they_name() -> None:
    plain, grouped = trained(), trained(optimizer_groups={"critic.*": ParameterGroup(lr=0.01)})
    assert torch.equal(flat(plain), flat(grouped))


# ---------------------------------------------------------------------------------------------------- frozen parts


class Normalised(nn.Module):
    """A network with batch normalisation in its body."""

    def __init__(self, output: str, n_outputs: int) -> None:
        super().__init__()
        self.output = output
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, affine=False), nn.Tanh())
        self.head = nn.Linear(8, n_outputs)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {self.output: self.head(self.body(observation["observation"]))}


def normalised() -> TorchActorCritic:
    torch.manual_seed(0)
    policy = TorchPolicy([Normalised("action", 2)], FLAT_SPEC)
    return TorchActorCritic(policy, TorchSharedStateCritic([Normalised("value", 1)], FLAT_SPEC))


@pytest.mark.parametrize("optimizer", ["adam", RMSprop])
def test_frozen_parts_keep_parameters_and_statistics_and_the_rest_learns(optimizer: Any) -> None:
    start = normalised()
    modules = {}
    for frozen in (None, ["policy.networks.*.body.*"]):
        modules[bool(frozen)] = trained(actor_critic=normalised(), frozen=frozen, optimizer=optimizer, capture="off")
    for is_frozen, module in modules.items():
        body, before = module.policy.networks[0][0].body, start.policy.networks[0][0].body
        assert torch.equal(flat(body), flat(before)) is is_frozen
        assert torch.equal(body[1].running_mean, before[1].running_mean) is is_frozen
        assert not torch.equal(flat(module.policy.networks[0][0].head), flat(start.policy.networks[0][0].head))
        in_critic = [part for part in module.critic.modules() if isinstance(part, nn.BatchNorm1d)]
        assert bool(in_critic[0].running_mean.any())  # zeros at the beginning
    assert modules[True].train().policy.networks[0][0].body[1].training is False


def test_with_frozen_statistics_updates_are_traced() -> None:
    module = trained(actor_critic=normalised(), frozen=["policy.networks.*.body.*", "critic.*.body.*"])
    assert module.capture_refusal is None and module.n_traces == 1


def population(seed: int) -> PopulationBatch:
    return PopulationBatch(NoiseTable(0, 1000), [0, 1], torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64), 7)


def recorded(seed: int) -> TrajectoryBatch:
    zeros = torch.zeros(4, dtype=torch.int64)
    return TrajectoryBatch({0: TransitionBatch({"observation": torch.ones(4, 3)}, {"action": zeros}, zeros)})


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch"), [(ES, population), (BC, recorded)])
@pytest.mark.parametrize("optimizer", ["sgd", RMSprop])
def test_other_algorithms_have_the_same_options(kind: Any, batch: Any, optimizer: Any) -> None:
    groups = {LAST: ParameterGroup(lr=Linear(0.0, 1e-6))}
    torch.manual_seed(1)
    module = make(kind, optimizer=optimizer, optimizer_groups=groups, frozen=["policy.*.0.bias"], lr_schedule="linear")
    start = make(kind)
    trainer = KIT.fit(module, make=batch, epochs=2)
    body, before = module.policy.networks[0][0].body, start.policy.networks[0][0].body
    assert torch.equal(body[0].bias, before[0].bias)
    assert float((body[0].weight - before[0].weight).detach().abs().max()) > 1e-4
    assert 0.0 < float((flat(body[3]) - flat(before[3])).abs().max()) < 1e-4
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    assert rates == pytest.approx([0.01 * 0.25, 1e-6 * 0.75])


# -------------------------------------------------------------------------------------------------------- resuming


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd"},
        {"optimizer": partial(AdamW, weight_decay=0.1), "optimizer_groups": {FIRST: ParameterGroup(lr=0.001)}},
        {"optimizer": partial(RMSprop, momentum=0.5), "frozen": [LAST], "lr_schedule": "linear"},
        {"optimizer": Halved, "optimizer_groups": {FIRST: ParameterGroup(lr=Linear(0.0, 0.1), weight_decay=0.1)}},
    ],
)
def test_a_resumed_run_ends_where_the_whole_run_ends(tmp_path: Path, options: dict[str, Any]) -> None:
    class Half(pl.callbacks.Checkpoint):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    def run(path: str, *callbacks: Any, **more: Any) -> Any:
        torch.manual_seed(1)
        trainer = KIT.fit(
            make(**options), epochs=4, length=2, enable_checkpointing=True, callbacks=[*callbacks], **more
        )
        trainer.save_checkpoint(tmp_path / path)
        saved = torch.load(tmp_path / path, weights_only=True)
        return {key: saved[key] for key in ("state_dict", "optimizer_states")}

    whole = run("whole.ckpt", Half())
    resumed = run("resumed.ckpt", pl.callbacks.Checkpoint(), ckpt_path=tmp_path / "half.ckpt")
    assert differences(whole, resumed) == []


def test_a_resumed_run_has_the_options_of_its_own_configuration(tmp_path: Path) -> None:
    module = make(optimizer=partial(AdamW, weight_decay=0.1), lr=0.01)
    trainer = KIT.fit(module)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    other = make(optimizer=partial(AdamW, weight_decay=0.7), lr=0.02)
    trainer = KIT.fit(other, epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert [(group["lr"], group["weight_decay"]) for group in trainer.optimizers[0].param_groups] == [(0.02, 0.7)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("is_earlier", [False, True], ids=["this version", "earlier version"])
def test_a_run_is_resumed_without_its_entries_of_optimizer_groups(tmp_path: Path, is_earlier: bool) -> None:
    path = tmp_path / "one.ckpt"
    groups = {"critic.*": ParameterGroup(lr=0.001, weight_decay=0.1)}
    KIT.fit(make(optimizer_groups=groups)).save_checkpoint(path)
    if is_earlier:
        checkpoint = torch.load(path, weights_only=True)
        del checkpoint[CHECKPOINT_KEY]["group_settings"]
        torch.save(checkpoint, path)
    trainer = KIT.fit(make(), epochs=2, ckpt_path=path)
    found = [(group["name"], group["lr"], group["weight_decay"]) for group in trainer.optimizers[0].param_groups]
    assert found == [("policy", 0.01, 0.0), ("critic", 0.01, 0.0)]
    trainer = KIT.fit(make(optimizer_groups=groups), epochs=2, ckpt_path=path)
    assert trainer.optimizers[0].param_groups[1]["lr"] == 0.001


def test_a_module_without_its_optimiser_is_refused_when_loaded(tmp_path: Path) -> None:
    groups = {FIRST: ParameterGroup(lr=0.001, weight_decay=0.1)}
    module = make(optimizer=partial(AdamW, weight_decay=0.1), optimizer_groups=groups, frozen=[LAST])
    KIT.fit(module).save_checkpoint(tmp_path / "one.ckpt")
    options: dict[str, Any] = {"actor_critic": KIT.make_actor_critic(), "weights_only": True}
    with pytest.raises(ValueError, match=r"optimizer='torch.optim.adamw.AdamW\(weight_decay=0.1\)' must be 'adam'"):
        PPO.load_from_checkpoint(tmp_path / "one.ckpt", **options)
    loaded = PPO.load_from_checkpoint(tmp_path / "one.ckpt", optimizer="adam", **options)
    made = loaded.configure_optimizers().param_groups
    assert [(group["name"], group["lr"], group["weight_decay"]) for group in made] == [
        (f"policy {FIRST}", 0.001, 0.1),
        ("critic", 0.01, 0.0),
    ]


# -------------------------------------------------------------------------------------------------------- refusals


class NoOptimizer:
    """A class that is called like an optimiser."""

    def __init__(self, params: Any) -> None:
        self.params = params


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimizer": "adamw"}, ValueError, r"optimizer='adamw' must be 'adam', 'sgd', or a class of optimisers"),
        ({"optimizer": NoOptimizer}, TypeError, r"optimizer=.*NoOptimizer made a NoOptimizer of parameter groups"),
        ({"optimizer": partial(AdamW, lr=0.1)}, ValueError, r"optimizer=AdamW sets lr=0.1: use the option lr of the"),
        ({"optimizer": torch.optim.LBFGS}, ValueError, "LBFGS"),
        ({"frozen": "policy.*"}, TypeError, r"frozen='policy.\*' must be a list of patterns"),
        ({"frozen": ["polcy.*"]}, ValueError, r"frozen: 'polcy.\*' matches no parameter; there are policy.networks.0"),
        ({"frozen": ["*"]}, ValueError, r"frozen=\['\*'\] leaves no parameter to train"),
        (
            {"optimizer_groups": {"encoder.*": ParameterGroup()}},
            ValueError,
            r"optimizer_groups: 'encoder.\*' matches no parameter; there are policy\.networks.*critic\..*any text",
        ),
        (
            {"optimizer_groups": {"*": ParameterGroup(), "critic.*": ParameterGroup()}},
            ValueError,
            r"optimizer_groups: 'critic.\*' has no effect: all parameters that it matches are frozen, or belong",
        ),
        (
            {"optimizer_groups": {"critic.*": ParameterGroup()}, "frozen": ["critic.*"]},
            ValueError,
            r"optimizer_groups: 'critic.\*' has no effect",
        ),
        (
            {"optimizer_groups": {"critic.*": ParameterGroup(options={"momentum": 0.5})}},
            ValueError,
            r"optimizer_groups\['critic.\*'\]: Adam has no option 'momentum'; it has betas, eps",
        ),
        ({"optimizer_groups": {"critic.*": ParameterGroup(lr=-1.0)}}, ValueError, r"\.lr=-1.0 must be greater than 0"),
        (
            {"optimizer_groups": {"critic.*": ParameterGroup(weight_decay=-1.0)}},
            ValueError,
            "weight_decay=-1.0 must be",
        ),
        ({"optimizer_groups": {"critic.*": ParameterGroup(options={"lr": 1.0})}}, ValueError, "must not contain lr"),
        ({"optimizer_groups": {"critic.*": 0.1}}, TypeError, r"=0.1 must be a ParameterGroup, such as"),
        ({"critic_burn_in_epochs": 1, "frozen": ["critic.*"]}, ValueError, "needs a critic with separate parameters"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make(A2C, **options).configure_optimizers()


def test_schedules_of_groups_need_the_length_of_the_run_and_contradict_schedulers() -> None:
    groups = {FIRST: ParameterGroup(lr=Linear(0.1, 0.0))}
    with pytest.raises(ValueError, match=r"optimizer_groups\['policy.*'\].lr needs the length of the run"):
        KIT.fit(make(optimizer_groups=groups), epochs=-1, max_steps=1)

    class Scheduled(PPO):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    with pytest.raises(ValueError, match=r"\.lr and a scheduler of configure_optimizers contradict"):
        KIT.fit(make(Scheduled, optimizer_groups=groups))


def test_a_scheduler_scales_the_rates_of_groups(kit: SimpleNamespace) -> None:
    class Scheduled(PPO):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    trainer = kit.fit(make(Scheduled, optimizer_groups={FIRST: ParameterGroup(lr=0.002)}), epochs=2)
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == pytest.approx([0.0025, 0.0005, 0.0025])


class ByHand(PPO):
    """Makes its optimiser itself."""

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"optimizer": "sgd"}, "optimizer"),
        ({"optimizer_groups": {FIRST: ParameterGroup(lr=0.002)}}, "optimizer_groups"),
        ({"optimizer": AdamW, "optimizer_groups": {FIRST: ParameterGroup(lr=0.002)}}, "optimizer and optimizer_groups"),
    ],
)
def test_options_of_optimisers_that_have_no_effect_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.warns(UserWarning, match=rf"^{named} of ByHand had no effect: its configure_optimizers does not call"):
        KIT.fit(make(ByHand, **options), length=1)


def test_an_algorithm_with_optimisers_of_its_user_needs_no_options() -> None:
    KIT.fit(make(ByHand), length=1)
