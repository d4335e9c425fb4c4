"""Learning rates by the options of an algorithm, as callbacks see them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import LearningRateMonitor

from maze_pl.modules import PPO

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
