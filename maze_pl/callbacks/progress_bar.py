"""The progress of a run: how fast environments are stepped, and how good the policy is."""

import time
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, TQDMProgressBar

from maze_pl.callbacks.epoch_table import env_steps, say


class RolloutProgressBar(TQDMProgressBar):
    """Shows env steps per second and the return of the last evaluation behind Lightning's bar."""

    _began_at, _began_with = 0.0, 0

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Count from here: the time that evaluation takes is not that of environment steps."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")  # Lightning counts from 0
        self._began_at, self._began_with = time.perf_counter(), env_steps(trainer.lightning_module)

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """What stands behind the bar."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        elapsed, steps = time.perf_counter() - self._began_at, env_steps(pl_module)
        metrics["env steps"] = f"{steps:,}"
        metrics["env steps/s"] = f"{(steps - self._began_with) / max(elapsed, 1e-9):,.0f}"
        if "eval/return" in trainer.callback_metrics:
            metrics["return"] = f"{float(trainer.callback_metrics['eval/return']):.1f}"
        return metrics


class ProgressLines(Callback):
    """Where there is no terminal for a bar: says now and then how far an epoch is, and how long the run will take.

    Args:
        interval: Seconds between two lines.
    """

    _began_at = _said_at = 0.0
    _began_with = _batches = 0

    def __init__(self, interval: float = 30.0) -> None:
        self.interval = interval

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count from here."""
        self._began_at = self._said_at = time.perf_counter()
        self._began_with, self._batches = env_steps(pl_module), 0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Say it, if the last time is long ago; an epoch's end is said by its table."""
        self._batches += 1
        now, n_batches = time.perf_counter(), int(trainer.num_training_batches)
        if trainer.is_last_batch or now - self._said_at < self.interval:
            return
        self._said_at, elapsed, steps = now, now - self._began_at, env_steps(pl_module)
        done = trainer.fit_loop.batch_idx + 1
        text = f"epoch {trainer.current_epoch + 1}: {done} of {n_batches} rollouts | {steps:,} env steps"
        text += f" | {(steps - self._began_with) / elapsed:,.0f} env steps/s"
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            left = (trainer.max_epochs - trainer.current_epoch) * n_batches - done
            text += f" | {timedelta(seconds=round(left * elapsed / self._batches))} left"
        say(trainer, text)
