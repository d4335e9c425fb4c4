"""Learning rates by the options of an algorithm, as callbacks see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor

from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.modules import PPO, AlgorithmModule

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:You are using `LearningRateMonitor` callback"),
]

FIRST, N_EPOCHS, N_BATCHES = 0.01, 3, 2


class Steps(pl.Callback):
    """Keeps the learning rates of policy and critic with which steps were made."""

    def __init__(self) -> None:
        self.rates: list[list[float]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.rates.append([group["lr"] for group in optimizer.param_groups])


def logged(kit: SimpleNamespace, folder: Path, interval: Any, **options: Any) -> tuple[Any, list[list[float]]]:
    """Train with one step a batch; return the rates that Lightning logs, and those of the steps."""
    steps, monitor, logger = Steps(), LearningRateMonitor(interval), pl.loggers.CSVLogger(folder)
    module = PPO(
        actor_critic=kit.make_actor_critic(), batch_size=40, n_optimization_epochs=1, **{"lr": FIRST, **options}
    )
    how = {"callbacks": [monitor, steps], "logger": logger, "log_every_n_steps": 1}
    kit.fit(module, epochs=N_EPOCHS, length=N_BATCHES, **how)
    assert [name.rpartition("/")[2] for name in monitor.lrs] == ["policy", "critic"]
    return [list(rates) for rates in zip(*monitor.lrs.values(), strict=True)], steps.rates


def linear(progress: float) -> float:
    return FIRST * (1.0 - progress)


@pytest.mark.parametrize("options", [{"lr_schedule": "linear"}, {"lr": linear}], ids=["lr_schedule", "lr"])
def test_lightnings_monitor_shows_the_rate_of_each_batch(kit: SimpleNamespace, tmp_path: Path, options: Any) -> None:
    shown, made = logged(kit, tmp_path, "step", **options)
    n_batches = N_EPOCHS * N_BATCHES
    assert shown == made
    assert [rate for rate, _ in made] == pytest.approx([FIRST * (1 - done / n_batches) for done in range(n_batches)])
    shown, made = logged(kit, tmp_path, "epoch", **options)
    assert shown == made[::N_BATCHES]


def test_lightnings_monitor_shows_in_which_batches_only_the_critic_learns(kit: SimpleNamespace, tmp_path: Path) -> None:
    shown, _ = logged(kit, tmp_path, "step", critic_burn_in_epochs=2)
    assert shown == [[0.0, FIRST]] * 2 * N_BATCHES + [[FIRST, FIRST]] * N_BATCHES


def test_a_schedule_need_not_have_a_value_after_the_last_batch(kit: SimpleNamespace, tmp_path: Path) -> None:
    shown, made = logged(kit, tmp_path, "step", lr=lambda progress: 1e-3 / (1.0 - progress))
    assert [rate for rate, _ in made] == pytest.approx([1e-3 * 6 / (6 - done) for done in range(6)])
    assert shown == made


# ----------------------------------------------------------------------------------------------- rates by callbacks


class Setting(pl.Callback):
    """Applies a function to the groups of all optimisers when a hook is called for the n-th time, counted from 0.

    Attributes:
        made: Learning rates of policy and critic in each step.
    """

    def __init__(self, hook: str, change: Callable[[dict[str, Any]], None], at: Sequence[int] = (0,)) -> None:
        self._change, self._at = change, at
        self._n_calls = 0
        setattr(self, hook, self._set)

    def _set(self, trainer: Any, *_: Any) -> None:
        if self._n_calls in self._at:
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    self._change(group)
        self._n_calls += 1


def steps_with(
    kit: SimpleNamespace, callbacks: list[pl.Callback], epochs: int = N_EPOCHS, path: Path | None = None, **options: Any
) -> tuple[list[list[float]], Any]:
    """Train with one step a batch; return the rates of policy and critic in each step, and the module."""
    steps, algorithm = Steps(), options.pop("algorithm", PPO)
    how = {"callbacks": [*callbacks, steps], "ckpt_path": options.pop("ckpt_path", None)}
    options = {"lr": FIRST, "batch_size": 40, "n_optimization_epochs": 1, **options}
    module = algorithm(actor_critic=kit.make_actor_critic(), **options)
    torch.manual_seed(1)
    trainer = kit.fit(module, epochs=epochs, length=N_BATCHES, **how)
    if path is not None:
        trainer.save_checkpoint(path)
    return steps.rates, module


OTHER = 0.003


def set_rate(group: dict[str, Any]) -> None:
    group["lr"] = OTHER


def halve(group: dict[str, Any]) -> None:
    group["lr"] *= 0.5


@pytest.mark.parametrize(
    ("hook", "n_before"),
    [
        ("on_fit_start", 0),
        ("on_train_start", 0),
        ("on_train_epoch_start", 0),
        ("on_train_batch_start", 0),
        ("on_before_optimizer_step", 0),
        ("on_train_batch_end", 1),
        ("on_validation_end", N_BATCHES),
        ("on_train_epoch_end", N_BATCHES),
    ],
)
def test_a_rate_that_a_callback_sets_is_kept(kit: SimpleNamespace, hook: str, n_before: int) -> None:
    made, module = steps_with(kit, [Setting(hook, set_rate)])
    assert made == [[FIRST] * 2] * n_before + [[OTHER] * 2] * (N_EPOCHS * N_BATCHES - n_before)
    recorded = module.epoch_statistics["train"]["ActorCriticEvents/learning_rate"]
    assert recorded == pytest.approx(OTHER)


def test_a_callback_can_decay_the_rate(kit: SimpleNamespace) -> None:
    made, _ = steps_with(kit, [Setting("on_train_epoch_start", halve, at=range(N_EPOCHS))])
    assert made == [[FIRST * 0.5 ** (1 + step // N_BATCHES)] * 2 for step in range(N_EPOCHS * N_BATCHES)]


def test_a_rate_of_0_by_a_callback_stops_learning(kit: SimpleNamespace) -> None:
    _, module = steps_with(kit, [Setting("on_train_start", lambda group: group.update(lr=0.0))])
    before = kit.make_actor_critic().parameters()
    assert all(torch.equal(*pair) for pair in zip(module.networks.parameters(), before, strict=True))


@pytest.mark.slow
def test_the_policy_rests_during_the_burn_in_and_has_the_rate_of_the_callback_afterwards(kit: SimpleNamespace) -> None:
    made, _ = steps_with(kit, [Setting("on_train_start", set_rate)], critic_burn_in_epochs=1)
    n_batches = N_EPOCHS * N_BATCHES
    assert made == [[0.0, OTHER]] * N_BATCHES + [[OTHER, OTHER]] * (n_batches - N_BATCHES)


def test_a_new_rate_by_the_algorithm_replaces_that_of_a_callback(kit: SimpleNamespace) -> None:
    class Lower(PPO):
        def learning_rate_of(self, group: str, learning_rate: float) -> float:
            return learning_rate if self.current_epoch < 2 or group == "critic" else 0.1 * learning_rate

    made, _ = steps_with(kit, [Setting("on_train_start", set_rate)], algorithm=Lower)
    assert made == [[OTHER, OTHER]] * 2 * N_BATCHES + [[pytest.approx(0.1 * FIRST), OTHER]] * N_BATCHES


@pytest.mark.parametrize("options", [{"lr_schedule": "linear"}, {"lr": linear}], ids=["lr_schedule", "lr"])
def test_a_rate_that_follows_a_schedule_cannot_be_set_which_a_warning_says(kit: SimpleNamespace, options: Any) -> None:
    callback = Setting("on_train_batch_start", set_rate, at=range(100))
    with pytest.warns(
        UserWarning, match=r"learning rate of 0.003, which a callback has set, has no effect: .* lr"
    ) as all:
        made, _ = steps_with(kit, [callback], **options)
    assert sum("which a callback has set" in str(one.message) for one in all) == 1
    expected = [FIRST * (1 - done / (N_EPOCHS * N_BATCHES)) for done in range(N_EPOCHS * N_BATCHES)]
    assert [rates for rates in made] == [pytest.approx([rate] * 2) for rate in expected]


class Scheduled(PPO):
    """With a scheduler that halves the rates after each epoch."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


@pytest.mark.parametrize("burn_in", [0, 1])
@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_batch_end"])
def test_a_scheduler_goes_on_from_the_rate_of_a_callback(
    kit: SimpleNamespace, tmp_path: Path, hook: str, burn_in: int
) -> None:
    path = tmp_path / "one.ckpt"
    how: dict[str, Any] = {"algorithm": Scheduled, "critic_burn_in_epochs": burn_in}
    made, _ = steps_with(kit, [Setting(hook, set_rate)], **how)
    first = OTHER if hook == "on_train_epoch_start" else FIRST
    rates = [first, OTHER, OTHER / 2, OTHER / 2, OTHER / 4, OTHER / 4]
    assert [of_critic for _, of_critic in made] == rates
    assert [of_policy for of_policy, _ in made] == [0.0] * burn_in * N_BATCHES + rates[burn_in * N_BATCHES :]
    steps_with(kit, [Setting(hook, set_rate)], epochs=1, path=path, **how)
    resumed, _ = steps_with(kit, [], ckpt_path=path, **how)
    assert resumed == made[N_BATCHES:]


def of_critic(group: dict[str, Any]) -> None:
    """Other options for the critic, all of them."""
    if group["name"] == "critic":
        group.update(lr=OTHER, weight_decay=0.5, betas=(0.5, 0.6))


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_epoch_start"])
def test_options_that_a_callback_sets_are_those_of_the_optimiser(kit: SimpleNamespace, hook: str) -> None:
    _, ours = steps_with(kit, [Setting(hook, of_critic)])

    class Configured(PPO):
        def configure_optimizers(self) -> Any:
            groups = [{"params": params, "name": name} for name, params in self.parameter_groups().items()]
            groups[1].update(lr=OTHER, weight_decay=0.5, betas=(0.5, 0.6))
            return torch.optim.Adam(groups, lr=FIRST)

    _, theirs = steps_with(kit, [], algorithm=Configured, capture="off")
    for found, expected in zip(ours.networks.parameters(), theirs.networks.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    (optimizer,) = [ours.trainer.optimizers[0]]
    assert optimizer.param_groups[1]["betas"] == (0.5, 0.6)


def settings(module: Any) -> list[tuple[Any, ...]]:
    return [(group["lr"], group["weight_decay"], group["betas"]) for group in module.trainer.optimizers[0].param_groups]


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_epoch_end"])
def test_a_resumed_run_has_what_callbacks_have_set_before(kit: SimpleNamespace, tmp_path: Path, hook: str) -> None:
    """The whole run and one of two parts, of which only the first has the callback."""
    made, whole = steps_with(kit, [Setting(hook, of_critic)], epochs=2)
    first, _ = steps_with(kit, [Setting(hook, of_critic)], epochs=1, path=tmp_path / "one.ckpt")
    second, resumed = steps_with(kit, [], epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert settings(whole) == settings(resumed) == [(FIRST, 0, (0.9, 0.999)), (OTHER, 0.5, (0.5, 0.6))]
    assert made == first + second
    for found, expected in zip(resumed.networks.parameters(), whole.networks.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_options_of_a_resumed_run_replace_what_callbacks_have_set(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    steps_with(kit, [Setting("on_train_start", of_critic)], epochs=1, path=path)
    made, resumed = steps_with(kit, [], epochs=2, ckpt_path=path, lr=0.02)
    assert made == [[0.02, 0.02]] * N_BATCHES
    assert settings(resumed)[1] == (0.02, 0.5, (0.5, 0.6))
    decayed = {"optimizer": partial(torch.optim.Adam, weight_decay=0.1)}
    made, resumed = steps_with(kit, [], epochs=2, ckpt_path=path, **decayed)
    assert made == [[FIRST, OTHER]] * N_BATCHES
    assert settings(resumed) == [(FIRST, 0.1, (0.9, 0.999)), (OTHER, 0.1, (0.5, 0.6))]


@pytest.mark.slow
def test_a_schedule_of_a_resumed_run_replaces_the_rate_of_a_callback(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    steps_with(kit, [Setting("on_train_start", of_critic)], epochs=1, path=path)
    made, _ = steps_with(kit, [], epochs=2, ckpt_path=path, lr=lambda progress: FIRST)
    assert made == [[FIRST, FIRST]] * N_BATCHES


@pytest.mark.slow
def test_a_callback_of_a_resumed_run_sets_options_when_training_starts(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    steps_with(kit, [], epochs=1, path=path)
    made, resumed = steps_with(kit, [Setting("on_train_start", of_critic)], epochs=2, ckpt_path=path)
    assert made == [[FIRST, OTHER]] * N_BATCHES
    assert settings(resumed)[1] == (OTHER, 0.5, (0.5, 0.6))


@pytest.mark.slow
def test_checkpoints_of_earlier_versions_have_the_settings_of_the_configuration(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "one.ckpt"
    steps_with(kit, [Setting("on_train_start", of_critic)], epochs=1, path=path)
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint[CHECKPOINT_KEY]["group_settings"]
    torch.save(checkpoint, path)
    made, resumed = steps_with(kit, [], epochs=2, ckpt_path=path, lr=0.02)
    assert made == [[0.02, 0.02]] * N_BATCHES
    assert settings(resumed) == [(0.02, 0, (0.9, 0.999))] * 2


@pytest.mark.slow
def test_what_a_callback_has_set_is_saved_after_an_evaluation(kit: SimpleNamespace, tmp_path: Path) -> None:
    _, module = steps_with(kit, [Setting("on_train_start", of_critic)], epochs=1)
    trainer = module.trainer
    trainer.validate(module, kit.Source(module, kit.make_evaluations, 1), verbose=False)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    made, resumed = steps_with(kit, [], epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert made == [[FIRST, OTHER]] * N_BATCHES
    assert settings(resumed)[1] == (OTHER, 0.5, (0.5, 0.6))


def test_options_that_flat_optimisers_do_not_have_are_refused(kit: SimpleNamespace) -> None:
    callback = Setting("on_train_epoch_start", lambda group: group.update(maximize=True))
    with pytest.raises(ValueError, match=r"FlatAdam has no maximize: use torch\.optim\.Adam$"):
        steps_with(kit, [callback])


class TwoOptimizers(AlgorithmModule):
    """Two optimisers whose first parameter is the same.

    Attributes:
        rates: Learning rates of both after each batch.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.rates: list[list[float]] = []

    def configure_optimizers(self) -> Any:
        groups = self.parameter_groups()
        groups["critic"].insert(0, groups["policy"][0])
        return [self.make_optimizer({name: parameters}) for name, parameters in groups.items()]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for index, _ in enumerate(self.trainer.optimizers):
            self.gradient_step(torch.zeros(()), optimizer=index)
        self.rates.append([optimizer.param_groups[0]["lr"] for optimizer in self.trainer.optimizers])


def test_optimisers_that_share_their_first_parameter_have_separate_rates(kit: SimpleNamespace) -> None:
    module = TwoOptimizers(actor_critic=kit.make_actor_critic(), lr=FIRST, critic_burn_in_epochs=1)
    kit.fit(module, epochs=2, length=N_BATCHES)
    assert module.rates == [[0.0, FIRST]] * N_BATCHES + [[FIRST, FIRST]] * N_BATCHES
