"""Early stopping after evaluations without improvement."""

import sys
from typing import Any, Final, Literal

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.callbacks.best_checkpoint import BestCheckpoint
from maze_pl.callbacks.last_checkpoint import is_within_epoch
from maze_pl.callbacks.monitor_errors import unknown_value
from maze_pl.core.run_starts import is_first_fit
from maze_pl.modules.published_values import awaits_training, current_metrics, is_of_training

_Mode = Literal["max", "min"]
_ENDLESS: Final = sys.maxsize


class EarlyStopping(callbacks.EarlyStopping):
    """Ends training after evaluations without improvement.

    A run that has ended in this way, or was stopped in its last epoch, ends again when it is resumed with
    the same patience, and continues with a larger one.

    Args:
        patience: Number of consecutive evaluations without improvement that ends training; 0 never
            ends it.
        monitor: Value that should improve: `eval/return`, `eval/kpi/<name>`, or any other logged
            value. Columns of training (`train_...`) are compared at the end of an epoch with an
            evaluation. None follows the `BestCheckpoint` of the same Trainer, or means
            `eval/return` without one.
        mode: Whether higher (`max`, also if None) or lower (`min`) is better; needs `monitor`.
        min_delta: The smallest change that counts as an improvement.

    Attributes:
        follows_best: True if it monitors the same value as `BestCheckpoint`.
    """

    def __init__(
        self,
        patience: int = 15,
        monitor: str | None = None,
        mode: _Mode | None = None,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 0:
            raise ValueError(f"patience={patience} must not be negative; 0 never ends training")
        if monitor is None and mode is not None:
            raise ValueError(f"mode={mode!r} applies to the value of monitor: set monitor, too")
        self.follows_best = monitor is None
        super().__init__(monitor or "eval/return", min_delta, patience or _ENDLESS, mode=mode or "max")
        self._problem: ValueError | None = None
        self._evaluated = self._is_evaluated_each_epoch = False

    def _forget(self) -> None:
        """Begin without earlier evaluations; what users have set stays."""
        self.min_delta = abs(self.min_delta) * (1 if self.mode == "max" else -1)
        self.load_state_dict(callbacks.EarlyStopping(self.monitor, mode=self.mode).state_dict())

    @property
    def state_key(self) -> str:
        """State key, other than that of Lightning's callback of the same name."""
        return f"maze_pl.{super().state_key}"

    @property
    def _legacy_state_key(self) -> Any:
        """State key in checkpoints of earlier versions, for Lightning."""
        return super().state_key

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Determine the monitored value; forget an earlier run, unless the same trainer trains on."""
        self.patience = self.patience or _ENDLESS  # users may have set it
        self._problem, self._evaluated = None, False
        if stage == "fit" and is_first_fit(trainer):  # the state of a resumed run is restored later
            self._forget()
        if self.follows_best:
            for callback in trainer.checkpoint_callbacks:
                if isinstance(callback, BestCheckpoint):
                    self._follow(callback)
        self._is_evaluated_each_epoch = _is_evaluated_once_an_epoch(trainer)
        self._check_on_train_epoch_end = self._is_evaluated_each_epoch or is_of_training(self.monitor)
        super().setup(trainer, pl_module, stage)

    def _follow(self, best: BestCheckpoint) -> None:
        """Monitor the same value as the best checkpoint."""
        if (self.monitor, self.mode) != (best.monitor, best.mode):
            self.monitor, self.mode = str(best.monitor), best.mode
            self._forget()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End a resumed run at once if it had no patience left."""
        if trainer.ckpt_path is not None and self.wait_count >= self.patience:
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin an epoch without an evaluation."""
        self._evaluated = False

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check for improvement, unless no evaluation has taken place that could give the value."""
        is_awaited = is_of_training(self.monitor) or not self._evaluated
        if is_awaited and is_within_epoch(trainer):
            return  # a resumed run finishes the epoch
        is_known = self._is_evaluated_each_epoch and self.monitor in current_metrics(trainer)
        if self._evaluated or is_known:
            super().on_train_epoch_end(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that there was an evaluation."""
        self._evaluated = self._evaluated or not trainer.sanity_checking

    def _run_early_stopping_check(self, trainer: pl.Trainer) -> None:
        metrics = current_metrics(trainer)
        if self.monitor in metrics:
            super()._run_early_stopping_check(trainer)
        elif not awaits_training(trainer, self.monitor):
            is_known = bool(self.best_score.isfinite())
            self._problem = unknown_value(self, self.monitor, metrics, has_been_known=is_known)
            trainer.should_stop = True  # after the last checkpoint

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Raise the error about a value that no evaluation gives."""
        if self._problem is not None:
            raise self._problem

    def state_dict(self) -> dict[str, Any]:
        """Return the count, and whether the current epoch has an evaluation."""
        return {**super().state_dict(), "evaluated": self._evaluated}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count; the patience comes from this run's configuration."""
        self._evaluated = is_of_training(self.monitor) and state_dict.get("evaluated", False)
        super().load_state_dict({**state_dict, "patience": self.patience})


def _is_evaluated_once_an_epoch(trainer: pl.Trainer) -> bool:
    """True if there is an evaluation after the last batch of each epoch, and no other one."""
    if trainer._val_check_time_interval is not None:  # type: ignore[attr-defined]
        return False  # the interval is a time, and there is no val_check_interval
    interval = trainer.val_check_interval  # 1 is a batch, 1.0 an epoch; Lightning confuses them
    return interval == 1.0 and isinstance(interval, float) and trainer.check_val_every_n_epoch == 1
