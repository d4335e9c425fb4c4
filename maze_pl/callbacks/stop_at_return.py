"""End of training when an evaluation reaches a threshold."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks

from maze_pl.callbacks.monitor_errors import unknown_value


class StopAtReturn(callbacks.Callback):
    """Ends training once an evaluation reaches a threshold; if none does, `maze-pl fit` fails.

    Args:
        threshold: The value to reach; None does nothing.
        monitor: Name of the value that must reach it.

    Attributes:
        best: The highest value so far.
    """

    def __init__(self, threshold: float | None = None, monitor: str = "eval/return") -> None:
        self.threshold, self.monitor = threshold, monitor
        self.best = -torch.inf
        self._problem: ValueError | None = None

    @property
    def missed(self) -> bool:
        """True if there is a threshold and it was not reached."""
        return self.threshold is not None and self.best < self.threshold

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the result of the evaluation with the threshold."""
        if self.threshold is None or trainer.sanity_checking:
            return
        if self.monitor not in trainer.callback_metrics:
            self._problem = unknown_value(self, self.monitor, trainer.callback_metrics)
        self.take(trainer)
        trainer.should_stop = trainer.should_stop or not self.missed or self._problem is not None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raise the error about a value that no evaluation gives, after the last checkpoint."""
        if self._problem is not None:
            raise self._problem

    def take(self, trainer: pl.Trainer) -> None:
        """Update `best` from the last evaluation; the parent of spawned ranks calls it at the end."""
        if self.monitor in trainer.callback_metrics:
            self.best = max(self.best, float(trainer.callback_metrics[self.monitor]))

    @property
    def state_key(self) -> str:
        """State key with the monitored value: the best of one value tells nothing about another."""
        return self._generate_state_key(monitor=self.monitor)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value so far."""
        self.best = state_dict["best"]
