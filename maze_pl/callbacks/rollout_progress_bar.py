"""Progress bar with env steps per second."""

import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar

from maze_pl.callbacks.epoch_table import env_steps, step_unit


class RolloutProgressBar(TQDMProgressBar):
    """Lightning's progress bar with env steps per second and the return of the last evaluation."""

    _began_at, _began_with = 0.0, 0
    _return: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget the return of an earlier training."""
        super().on_train_start(trainer, pl_module)
        self._return = None

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Restart the count: the time of evaluations is not part of the env steps per second."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")  # Lightning counts from 0
        self._began_at, self._began_with = time.perf_counter(), env_steps(trainer.lightning_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the return as a number, as reading it in each batch would wait for the device."""
        if "eval/return" in trainer.callback_metrics and not trainer.sanity_checking:
            self._return = float(trainer.callback_metrics["eval/return"])
        super().on_validation_end(trainer, pl_module)  # which updates the bar

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Return the values shown after the bar."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        elapsed, steps = time.perf_counter() - self._began_at, env_steps(pl_module)
        unit = step_unit(pl_module)
        metrics[unit] = f"{steps:,}"
        metrics[f"{unit}/s"] = f"{(steps - self._began_with) / max(elapsed, 1e-9):,.0f}"
        if self._return is not None:
            metrics["return"] = f"{self._return:.1f}"
        return metrics
