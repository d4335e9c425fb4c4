"""End of training when an evaluation reaches a threshold."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from maze_pl.callbacks.monitor_errors import unknown_value
from maze_pl.core.run_starts import is_first_fit
from maze_pl.modules.published_values import awaits_training, current_metrics, is_of_training


class StopAtReturn(callbacks.Callback):
    """Ends training once an evaluation reaches a threshold; if none does, `maze-pl fit` fails.

    Evaluations before a run was resumed count as well, also those without a threshold.

    Args:
        threshold: The value to reach; None never ends training.
        monitor: Name of the value that must reach it. Columns of training (`train_...`) are compared
            at the end of an epoch with an evaluation.

    Attributes:
        best: The highest value so far.
    """

    def __init__(self, threshold: float | None = None, monitor: str = "eval/return") -> None:
        self.threshold, self.monitor = threshold, monitor
        self._begin()

    def _begin(self) -> None:
        """Begin without earlier evaluations."""
        self.best = -torch.inf
        self._problem: ValueError | None = None
        self._evaluated = False

    @property
    def missed(self) -> bool:
        """True if there is a threshold and it was not reached."""
        return self.threshold is not None and self.best < self.threshold

    @property
    def outcome(self) -> str:
        """The highest value so far and the threshold, for a message that it was missed."""
        if self.best == -torch.inf:
            return f"no value of {self.monitor} is known, so that it has not reached {self.threshold}"
        return f"{self.monitor} reached {self.best:.1f}, not {self.threshold}"

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Forget an earlier run, unless the same trainer trains on."""
        if stage == "fit" and is_first_fit(trainer):  # the state of a resumed run is restored later
            self._begin()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End a resumed run at once if it has reached the threshold."""
        if trainer.ckpt_path is not None and self.threshold is not None and not self.missed:
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin an epoch without an evaluation."""
        self._evaluated = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the result of the evaluation with the threshold."""
        if trainer.sanity_checking:
            return
        self._evaluated = True
        if not is_of_training(self.monitor):
            self._compare(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare a value of training with the threshold, if there was an evaluation."""
        if self._evaluated and is_of_training(self.monitor):
            self._compare(trainer)

    def _compare(self, trainer: pl.Trainer) -> None:
        metrics = current_metrics(trainer)
        if self.monitor in metrics:
            self.best = max(self.best, float(metrics[self.monitor]))
        if self.threshold is None:
            return
        if self.monitor not in metrics and not awaits_training(trainer, self.monitor):
            is_known = self.best > -torch.inf
            self._problem = unknown_value(self, self.monitor, metrics, has_been_known=is_known)
        trainer.should_stop = trainer.should_stop or not self.missed or self._problem is not None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raise the error about a value that no evaluation gives, after the last checkpoint.

        Spawned ranks return metrics to their parent, but no callbacks; `best` may be of an earlier command.
        """
        if self._problem is not None:
            raise self._problem
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher) and self.best > -torch.inf:
            trainer.callback_metrics[self.state_key] = torch.tensor(self.best, dtype=torch.float64)

    def take(self, trainer: pl.Trainer) -> None:
        """Update `best` from spawned ranks, whose parent calls it at the end."""
        if self.state_key in trainer.callback_metrics:
            self.best = max(self.best, float(trainer.callback_metrics[self.state_key]))

    @property
    def state_key(self) -> str:
        """State key with the monitored value: the best of one value tells nothing about another."""
        return self._generate_state_key(monitor=self.monitor)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far, and whether the current epoch has an evaluation."""
        return {"best": self.best, "evaluated": self._evaluated}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best value so far."""
        self.best = state_dict["best"]
        self._evaluated = state_dict.get("evaluated", False)
