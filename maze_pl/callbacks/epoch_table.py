"""The console's view of an epoch: how far it is, and its statistics as a table, grouped by topic."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, TQDMProgressBar
from tqdm import tqdm

from maze_pl.events.statistics_table import render
from maze_pl.modules.algorithm import AlgorithmModule


class EpochTable(Callback):
    """Prints the statistics of each epoch."""

    _began, _evaluated = 0.0, False

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time."""
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of the epoch, with that of its evaluation if there was one."""
        seconds = time.perf_counter() - self._began
        epoch = trainer.current_epoch + 1
        title = f"epoch {epoch} | {env_steps(pl_module):,} env steps | {seconds:.1f} s"
        shown = {name: table for name, table in _statistics(pl_module).items() if self._evaluated or name == "train"}
        self._evaluated = False
        say(trainer, render(title, epoch, shown))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of an evaluation outside of training."""
        self._evaluated = not trainer.sanity_checking
        if trainer.state.fn == "validate":
            self.on_test_end(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of a test, which is an evaluation too."""
        title = f"evaluation | {env_steps(pl_module):,} env steps of training"
        say(trainer, render(title, 1, _statistics(pl_module)))


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


def say(trainer: pl.Trainer, text: str) -> None:
    """Show a text beside a progress bar, should there be one.

    Args:
        trainer: Only its first rank speaks, and only if it shows tables.
        text: One or several lines.
    """
    if trainer.is_global_zero and any(isinstance(one, EpochTable) for one in trainer.callbacks):  # type: ignore[attr-defined]
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()


def _statistics(module: pl.LightningModule) -> Mapping[str, Mapping[str, Any]]:
    return module.epoch_statistics if isinstance(module, AlgorithmModule) else {}


def env_steps(module: pl.LightningModule) -> int:
    """Env steps so far; 0 of a module that does not count them."""
    return module.env_steps if isinstance(module, AlgorithmModule) else 0
