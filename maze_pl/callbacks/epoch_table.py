"""Statistics of each epoch as a table."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from tqdm import tqdm

from maze_pl.events.display import render, render_descriptions
from maze_pl.loggers.dashboard import dashboards, log_epoch
from maze_pl.modules.algorithm import AlgorithmModule


class EpochTable(Callback):
    """Shows the statistics of each epoch: as a table, and histograms and plots in dashboards.

    Below the first table, each statistic of the algorithm is described in one line.
    """

    _began, _evaluated, _explained = 0.0, False, False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock, also of the rest of an epoch."""
        self._began = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the training statistics, in one table with the evaluation if there was one."""
        seconds = time.perf_counter() - self._began
        epoch = trainer.current_epoch + 1
        title = f"epoch {epoch} | {steps_text(pl_module)} | {seconds:.1f} s"
        tables = dict(_statistics(pl_module))
        if not self._evaluated:
            tables = {name: table for name, table in tables.items() if name == "train"}
        self._evaluated = False
        say(trainer, render(title, epoch, tables))
        if not self._explained and isinstance(pl_module, AlgorithmModule):
            self._explained = True
            descriptions = render_descriptions(tables, pl_module.described_statistics())
            if descriptions:
                say(trainer, f"{descriptions}\n")
        _log(trainer, pl_module, of_training=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the evaluation statistics; print their table only outside of training."""
        self._evaluated = not trainer.sanity_checking
        if self._evaluated:
            _log(trainer, pl_module, of_training=False)
        if trainer.state.fn == "validate":
            self.on_test_end(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of a test, which is also an evaluation."""
        title = f"evaluation | {steps_text(pl_module)} of training"
        say(trainer, render(title, 1, _statistics(pl_module)))


def say(trainer: pl.Trainer, text: str) -> None:
    """Print a text without disturbing a progress bar.

    Args:
        trainer: Only rank 0 prints, and only if the trainer has an `EpochTable`.
        text: One or several lines.
    """
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    has_table = any(isinstance(callback, EpochTable) for callback in callbacks)
    if trainer.is_global_zero and has_table:
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()


def _statistics(module: pl.LightningModule) -> Mapping[str, Mapping[str, Any]]:
    return module.epoch_statistics if isinstance(module, AlgorithmModule) else {}


def _log(trainer: pl.Trainer, module: pl.LightningModule, of_training: bool) -> None:
    """Log histograms and plots to dashboards, and flush them to disk; other modules than algorithms have none."""
    if not isinstance(module, AlgorithmModule):
        return
    for source, values in _statistics(module).items():
        if (source == "train") == of_training:
            plots = module.epoch_plots[source]
            log_epoch(dashboards(trainer), source, values, plots, module.env_steps)


def env_steps(module: pl.LightningModule) -> int:
    """Return the env steps so far; 0 for a module that does not count them."""
    return module.env_steps if isinstance(module, AlgorithmModule) else 0


def step_unit(module: pl.LightningModule) -> str:
    """Return the unit of `env_steps`, such as acts for algorithms that clone demonstrations."""
    return module.step_unit if isinstance(module, AlgorithmModule) else AlgorithmModule.step_unit


def steps_text(module: pl.LightningModule, steps: int | None = None) -> str:
    """Return a number of steps with its unit, such as `1,000 env steps`.

    Args:
        module: The module that counts them.
        steps: The number; None means the steps so far.
    """
    return f"{env_steps(module) if steps is None else steps:,} {step_unit(module)}"
