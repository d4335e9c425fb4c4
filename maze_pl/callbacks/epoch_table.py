"""The console's view of an epoch: its statistics as a table, grouped by topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from tqdm import tqdm

from maze_pl.modules.algorithm import AlgorithmModule


class EpochTable(Callback):
    """Prints the statistics of each epoch.

    Args:
        log_file: A file that gets the same text, or None.
    """

    def __init__(self, log_file: str | None = None) -> None:
        self._log_file = log_file
        self._began = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time."""
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of the epoch."""
        seconds = time.perf_counter() - self._began
        title = f"epoch {trainer.current_epoch + 1} | {_env_steps(pl_module):,} env steps | {seconds:.1f} s"
        self.write(trainer, render(title, _statistics(pl_module)))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of an evaluation outside of training."""
        if not trainer.training and not trainer.sanity_checking and trainer.state.fn == "validate":
            self.write(trainer, render("evaluation", _statistics(pl_module)))

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of a test, which is an evaluation too."""
        self.write(trainer, render("evaluation", _statistics(pl_module)))

    def write(self, trainer: pl.Trainer, text: str) -> None:
        """Show a text, and keep it in the log file.

        Args:
            trainer: Only its first rank writes.
            text: One or several lines.
        """
        if not trainer.is_global_zero:
            return
        tqdm.write(text, file=sys.stdout)  # beside a progress bar, should there be one
        sys.stdout.flush()
        if self._log_file is not None:
            with Path(self._log_file).open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def render(title: str, statistics: Mapping[str, Mapping[str, Any]]) -> str:
    """Statistics as text.

    Args:
        title: What they are of.
        statistics: Stage, such as `train` or `eval` -> `<Topic>/<event>/<statistic>` -> value.
    """
    rows: list[tuple[str, str, str]] = []
    for stage, values in statistics.items():
        group = None
        for key in sorted(values, key=_topic):
            topic, _, rest = key.partition("/")
            rows.append((f"{stage} {topic}" if topic != group else "", rest, format_value(values[key])))
            group = topic
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    rule = "-" * max(len(title), sum(widths) + 4)
    table = [f"{group:{widths[0]}}  {name:{widths[1]}}  {value:>{widths[2]}}" for group, name, value in rows]
    return "\n".join([rule, title, rule, *table])


def _topic(key: str) -> str:
    return key.partition("/")[0]


def format_value(value: Any) -> str:
    """A value for reading: integers in groups of three digits, small numbers with enough digits not to be zero."""
    if isinstance(value, bool | int):
        return f"{value:,}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if number.is_integer() and abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3f}" if abs(number) >= 0.1 or number == 0 else f"{number:.3g}"


def _statistics(module: pl.LightningModule) -> Mapping[str, Mapping[str, Any]]:
    return module.epoch_statistics if isinstance(module, AlgorithmModule) else {}


def _env_steps(module: pl.LightningModule) -> int:
    return module.env_steps if isinstance(module, AlgorithmModule) else 0
