"""Checkpoints of a run: the best by evaluation, the last of all, and what makes each complete; and when training ends.

One ModelCheckpoint with both `monitor` and `save_last` leaves a last checkpoint that is stale whenever the metric does
not improve; so there are two callbacks. Both write under another name first and rename, so that a run which is killed
while it saves still has its former checkpoint.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning import callbacks

from maze_pl.callbacks.epoch_table import say
from maze_pl.events.statistics_table import format_value
from maze_pl.loading import CHECKPOINT_KEY
from maze_pl.search_path import suggestion

_Mode = Literal["max", "min"]


def require_value(callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any]) -> None:
    """Refuse to wait for a value, such as a KPI, that evaluations do not give.

    Raises:
        ValueError: There is no such value; says which there are.
    """
    if monitor not in metrics:
        short = sorted(name for name in metrics if "_" not in name.partition("/")[0])
        known = f"{', '.join(short)}, and the columns of metrics.csv{suggestion(monitor, metrics)}"
        raise ValueError(f"{type(callback).__name__}(monitor={monitor!r}): no evaluation gives it; it has {known}")


def save_atomically(trainer: pl.Trainer, path: str | Path) -> None:
    """Write a checkpoint so that its file is at every moment the former or the new one; all ranks must call it.

    Raises:
        OSError: It cannot be written, for example because the disk is full.
    """
    temporary = f"{path}.part"
    try:
        trainer.save_checkpoint(temporary, weights_only=False)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        kept = "its former version is kept" if Path(path).is_file() else "it was the first one"
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"the checkpoint {path} cannot be written: {reason}; {kept}") from error
    if trainer.is_global_zero:
        os.replace(temporary, path)
    trainer.strategy.barrier("maze_pl.save_atomically")


def _folder(trainer: pl.Trainer, stage: str, dirpath: str | Path | None) -> str:
    """The folder of a callback's checkpoints, made before training, so that it is known whether it can be."""
    folder = Path(dirpath or Path(trainer.default_root_dir, "checkpoints"))
    if stage == "fit" and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
        folder.mkdir(parents=True, exist_ok=True)
    return trainer.strategy.broadcast(str(folder))


class BestCheckpoint(callbacks.ModelCheckpoint):
    """Keeps the checkpoint with the best evaluation as `best.ckpt`.

    Args:
        monitor: What is compared after each evaluation: `eval/return`, `eval/kpi/<name>`, or any other logged value.
        mode: Whether more (`max`) or less (`min`) of it is better.
        dirpath: Folder; `checkpoints` in the run directory if None.
    """

    def __init__(self, monitor: str = "eval/return", mode: str = "max", dirpath: str | None = None) -> None:
        # at the end of an epoch, where that is evaluated, so that it can be resumed from exactly
        when: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        super().__init__(dirpath, "best", monitor, mode=mode, **when)
        self._evaluated = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder, without Lightning's warning if it is not empty, as whenever a run is resumed."""
        self.dirpath = _folder(trainer, stage, self.dirpath)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember that there is something to compare, or compare at once where the epoch goes on."""
        self._evaluated = not trainer.sanity_checking
        if trainer.state.fn == "fit" and not trainer.is_last_batch:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if the evaluation of this epoch is the best."""
        if self._evaluated:
            require_value(self, str(self.monitor), trainer.callback_metrics)
            super().on_train_epoch_end(trainer, pl_module)
        self._evaluated = False

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        save_atomically(trainer, filepath)
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath
        say(trainer, f"-> new best {self.monitor} {format_value(trainer.callback_metrics[str(self.monitor)].item())}!")


class LastCheckpoint(callbacks.Checkpoint):
    """Keeps the checkpoint of the last epoch as `last.ckpt`, from which a run is resumed.

    Args:
        every_n_epochs: Epochs between checkpoints; the last epoch is always kept.
        dirpath: Folder; `checkpoints` in the run directory if None.
    """

    def __init__(self, every_n_epochs: int = 1, dirpath: str | None = None) -> None:
        super().__init__()
        if every_n_epochs < 1:
            raise ValueError(f"every_n_epochs={every_n_epochs} must be at least 1")
        self.every_n_epochs, self.dirpath = every_n_epochs, dirpath

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder."""
        self.dirpath = _folder(trainer, stage, self.dirpath)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint."""
        done = trainer.current_epoch + 1
        if done % self.every_n_epochs == 0 or trainer.should_stop or done == trainer.max_epochs:
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint, whatever epoch it is; all ranks must call it."""
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            save_atomically(trainer, f"{self.dirpath}/last.ckpt")


class CheckpointConfiguration(callbacks.Callback):
    """Puts into each checkpoint what `maze_pl.load` needs: the configuration of module and data, and the spec.

    Args:
        config: `model` and `data`, each a class path with its arguments, of YAML types only.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = {name: config[name] for name in ("model", "data")}

    def on_save_checkpoint(self, trainer: pl.Trainer, _: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the configuration."""
        spec = trainer.datamodule.spec.to_dict()  # type: ignore[attr-defined]
        checkpoint[CHECKPOINT_KEY] = {**self.config, "spec": spec}


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
