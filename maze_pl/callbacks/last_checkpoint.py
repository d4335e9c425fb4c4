"""Checkpoint of the last epoch, from which a run is resumed."""

import sys
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks
from pytorch_lightning.plugins.io import AsyncCheckpointIO

from maze_pl.config.lightning_features import ASYNCHRONOUS
from maze_pl.core.checks import check_count
from maze_pl.runs.checkpoint_files import write_checkpoint


class LastCheckpoint(callbacks.Checkpoint):  # Lightning calls these after the module and other callbacks
    """Keeps the checkpoint of the last epoch as `last.ckpt`, from which a run is resumed.

    The first one is written with the first `best.ckpt`, also within `every_n_epochs`, so that a killed run
    never continues from an earlier point than that of its best checkpoint.

    A run that ends within an epoch, for example by `max_steps`, is resumed after its last batch and
    finishes the epoch. An evaluation that Lightning adds to such an end does not count then, except
    that it may have chosen `best.ckpt`.

    Args:
        every_n_epochs: Epochs between checkpoints; the end of a run is always kept.
        dirpath: Folder; None means `checkpoints` in the run directory.
    """

    def __init__(self, every_n_epochs: int = 1, dirpath: str | None = None) -> None:
        check_count("every_n_epochs", every_n_epochs, 1)
        self.every_n_epochs, self.dirpath = every_n_epochs, dirpath
        self._given_dirpath: str | None = None
        self._folder: str | None = None  # that was determined
        self._kept_batch: int | None = None  # index in the run of the batch after which it was written
        self._best: callbacks.ModelCheckpoint | None = None

    @property
    def is_kept(self) -> bool:
        """True if the current command has written the checkpoint."""
        return self._kept_batch is not None

    @property
    def best_model_path(self) -> str:
        """Path of the best checkpoint by another callback, for Lightning."""
        return "" if self._best is None else self._best.best_model_path

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Determine the folder."""
        self._best = best_checkpoint(trainer)
        if self.dirpath != self._folder:  # it was set since then
            self._given_dirpath = self.dirpath
        self.dirpath = self._folder = checkpoint_folder(trainer, stage, self._given_dirpath)
        self._kept_batch = None

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Write the checkpoint if the run ends after this batch, within an epoch."""
        if is_within_epoch(trainer) and _is_ending(trainer):
            self.write(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if the run ends with this evaluation, within an epoch."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or not is_within_epoch(trainer):
            return
        is_kept = self._kept_batch == trainer.fit_loop.total_batch_idx
        if _is_ending(trainer) and (is_evaluated_now(trainer) or not is_kept):
            self.write(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if due."""
        done = trainer.current_epoch + 1
        is_last = done == trainer.max_epochs or _is_ending(trainer)
        if done % self.every_n_epochs == 0 or is_last:
            self.write(trainer)

    def write(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint at the current point of training; all ranks must call it.

        Once an epoch has ended before its last batch, the checkpoint after that batch is kept.
        """
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        batch = trainer.fit_loop.total_batch_idx
        progress = trainer.fit_loop.epoch_progress
        epochs: Any = progress.current
        has_ended_early = is_within_epoch(trainer) and epochs.processed == epochs.ready
        if has_ended_early and self._kept_batch == batch:
            return
        counts: list[Any] = [progress.total, progress.current] if has_ended_early else []
        for count in counts:  # Lightning would resume with the next epoch
            count.processed -= 1
        try:
            write_checkpoint(trainer, f"{self.dirpath}/last.ckpt")
        finally:
            for count in counts:
                count.processed += 1
        self._kept_batch = batch


def keep_last(trainer: pl.Trainer) -> None:
    """Write `last.ckpt`; all ranks must call it, in callbacks after the module."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, LastCheckpoint):
            callback.write(trainer)


def keep_first(trainer: pl.Trainer) -> None:
    """Write `last.ckpt` if this command has not written it yet; see `keep_last`."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, LastCheckpoint) and not callback.is_kept:
            callback.write(trainer)


def is_within_epoch(trainer: pl.Trainer) -> bool:
    """Return True if the current training batch is not the last one of its epoch."""
    is_last = trainer.fit_loop.batch_idx + 1 == trainer.num_training_batches
    return not is_last and not trainer.is_last_batch


def is_evaluated_now(trainer: pl.Trainer) -> bool:
    """Return True if `val_check_interval` wants an evaluation after the current training batch."""
    every = trainer.check_val_every_n_epoch
    if every is not None and (trainer.current_epoch + 1) % every:
        return False
    loop = trainer.fit_loop
    n_batches = 1 + (loop.total_batch_idx if every is None else loop.batch_idx)
    interval = trainer.val_check_batch or sys.maxsize  # None if it is a time
    return n_batches % interval == 0


def _is_ending(trainer: pl.Trainer) -> bool:
    """Return True if training ends after the current batch or epoch, by a limit of steps or on request."""
    has_all_steps = 0 <= trainer.max_steps <= trainer.global_step
    return has_all_steps or (trainer.should_stop and trainer.fit_loop._can_stop_early)


def best_checkpoint(trainer: pl.Trainer) -> callbacks.ModelCheckpoint | None:
    """Return the first callback that knows the path of the best checkpoint, None without one."""
    every = trainer.checkpoint_callbacks
    return next((one for one in every if isinstance(one, callbacks.ModelCheckpoint)), None)


def checkpoint_folder(trainer: pl.Trainer, stage: str, dirpath: str | Path | None) -> str:
    """Return the absolute path of a callback's checkpoints; the folder is made before training to fail early.

    Raises:
        ValueError: Checkpoints would be written later than they are renamed.
    """
    if isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
        raise ValueError(ASYNCHRONOUS)
    folder = Path(dirpath or Path(trainer.default_root_dir, "checkpoints")).absolute()
    if stage == "fit" and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
        folder.mkdir(parents=True, exist_ok=True)
    return trainer.strategy.broadcast(str(folder))
