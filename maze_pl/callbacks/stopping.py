"""When training ends before its last epoch: because nothing improves any more, or because the goal is reached."""

import sys
from collections.abc import Mapping
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks

from maze_pl.search_path import suggestion

_Mode = Literal["max", "min"]


def require_value(callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any]) -> None:
    """Refuse to wait for a value, such as a KPI, that evaluations do not give.

    Raises:
        ValueError: There is no such value; says which there are.
    """
    if monitor not in metrics:
        known = f"{', '.join(sorted(metrics))}{suggestion(monitor, metrics)}"
        raise ValueError(f"{type(callback).__name__}(monitor={monitor!r}): no evaluation gives it; it has {known}")


class EarlyStopping(callbacks.EarlyStopping):
    """Ends training after evaluations without improvement.

    Args:
        patience: How many evaluations in a row may bring no improvement; 0 never ends training.
        monitor: What should improve: `eval/return`, `eval/kpi/<name>`, or any other logged value.
        mode: Whether more (`max`) or less (`min`) of it is better.
        min_delta: The least change that counts as an improvement.
    """

    def __init__(
        self, patience: int = 15, monitor: str = "eval/return", mode: _Mode = "max", min_delta: float = 0.0
    ) -> None:
        if patience < 0:
            raise ValueError(f"patience={patience} must not be negative; 0 never ends training")
        super().__init__(monitor=monitor, mode=mode, min_delta=min_delta, patience=patience or sys.maxsize)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check, unless there are no evaluations that could have given what should improve."""
        if self.monitor in trainer.callback_metrics or any(trainer.num_val_batches):
            super().on_train_epoch_end(trainer, pl_module)

    def _validate_condition_metric(self, logs: dict[str, torch.Tensor]) -> bool:
        require_value(self, self.monitor, logs)
        return super()._validate_condition_metric(logs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting; the patience itself is that of this run's configuration."""
        super().load_state_dict({**state_dict, "patience": self.patience})


class StopAtReturn(callbacks.Callback):
    """Ends training as soon as an evaluation reaches a threshold; `maze-pl fit` fails if none ever does.

    Args:
        threshold: The value to be reached; None does nothing.
        monitor: What must reach it.

    Attributes:
        best: The highest value so far.
    """

    def __init__(self, threshold: float | None = None, monitor: str = "eval/return") -> None:
        self.threshold, self.monitor = threshold, monitor
        self.best = -torch.inf

    @property
    def missed(self) -> bool:
        """Whether there is a threshold that was not reached."""
        return self.threshold is not None and self.best < self.threshold

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the evaluation's result."""
        if self.threshold is None or trainer.sanity_checking:
            return
        require_value(self, self.monitor, trainer.callback_metrics)
        self.take(trainer)
        trainer.should_stop = trainer.should_stop or not self.missed

    def take(self, trainer: pl.Trainer) -> None:
        """Take in the last evaluation; in the process that spawned those that train, only after training."""
        if self.monitor in trainer.callback_metrics:
            self.best = max(self.best, float(trainer.callback_metrics[self.monitor]))

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from it."""
        self.best = state_dict["best"]
