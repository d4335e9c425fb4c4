"""Checkpoint of the last epoch, from which a run is resumed."""

from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.core.checks import check_count
from maze_pl.runs.checkpoint import write_checkpoint


class LastCheckpoint(callbacks.Checkpoint):
    """Keeps the checkpoint of the last epoch as `last.ckpt`, from which a run is resumed.

    Args:
        every_n_epochs: Epochs between checkpoints; the last epoch is always kept.
        dirpath: Folder; None means `checkpoints` in the run directory.
    """

    def __init__(self, every_n_epochs: int = 1, dirpath: str | None = None) -> None:
        check_count("every_n_epochs", every_n_epochs, 1)
        self.every_n_epochs, self.dirpath = every_n_epochs, dirpath

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Determine the folder."""
        self.dirpath = checkpoint_folder(trainer, stage, self.dirpath)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if due, also in the middle of an epoch; all ranks must call it."""
        done = trainer.current_epoch + 1
        due = done % self.every_n_epochs == 0 or trainer.should_stop or done == trainer.max_epochs
        if due and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            write_checkpoint(trainer, f"{self.dirpath}/last.ckpt")


def keep_last(trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
    """End training and write `last.ckpt`; all ranks must call it, in callbacks after the module."""
    trainer.should_stop = True  # so that a checkpoint is due
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, LastCheckpoint):
            callback.on_train_epoch_end(trainer, pl_module)


def checkpoint_folder(trainer: pl.Trainer, stage: str, dirpath: str | Path | None) -> str:
    """Return the folder of a callback's checkpoints; it is made before training to fail early."""
    folder = Path(dirpath or Path(trainer.default_root_dir, "checkpoints"))
    if stage == "fit" and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
        folder.mkdir(parents=True, exist_ok=True)
    return trainer.strategy.broadcast(str(folder))
