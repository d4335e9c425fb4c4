"""The progress bar of a run: how fast environments are stepped, and how good the policy is."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar

from maze_pl.modules.algorithm import AlgorithmModule


class RolloutProgressBar(TQDMProgressBar):
    """Shows env steps per second and the return of the last evaluation behind Lightning's bar.

    Args:
        refresh_rate: Batches between updates.
        monitor: The metric shown as return.
    """

    def __init__(self, refresh_rate: int = 1, monitor: str = "eval/return") -> None:
        super().__init__(refresh_rate=refresh_rate)
        self._monitor = monitor
        self._began_at, self._began_with = 0.0, 0

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Count from here: the time that evaluation takes is not that of environment steps."""
        super().on_train_epoch_start(trainer, *args)
        self._began_at, self._began_with = time.perf_counter(), _env_steps(trainer.lightning_module)

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """What stands behind the bar."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        elapsed = time.perf_counter() - self._began_at
        steps = _env_steps(pl_module)
        metrics["env steps"] = f"{steps:,}"
        metrics["env steps/s"] = f"{(steps - self._began_with) / max(elapsed, 1e-9):,.0f}"
        if self._monitor in trainer.callback_metrics:
            metrics["return"] = f"{float(trainer.callback_metrics[self._monitor]):.1f}"
        return metrics


def _env_steps(module: pl.LightningModule) -> int:
    return module.env_steps if isinstance(module, AlgorithmModule) else 0
