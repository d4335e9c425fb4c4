"""Checkpoints of a run: the best by evaluation, the last of all, and what makes each of them complete.

One ModelCheckpoint with both `monitor` and `save_last` leaves a last checkpoint that is stale whenever the metric does
not improve; so there are two callbacks. Both write under another name first and rename, so that a run which is killed
while it saves still has its former checkpoint.
"""

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Checkpoint, ModelCheckpoint

from maze_pl.callbacks.epoch_table import format_value, say
from maze_pl.callbacks.stopping import require_value
from maze_pl.loading import CHECKPOINT_KEY


def save_atomically(trainer: pl.Trainer, path: str | Path) -> None:
    """Write a checkpoint so that its file is at every moment the former or the new one; all ranks must call it.

    Raises:
        OSError: It cannot be written, for example because the disk is full.
    """
    temporary = f"{path}.part"
    try:
        trainer.save_checkpoint(temporary, weights_only=False)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
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
    return str(folder)


class BestCheckpoint(ModelCheckpoint):
    """Keeps the checkpoint with the best evaluation as `best.ckpt`.

    Args:
        monitor: What is compared after each evaluation: `eval/return`, `eval/kpi/<name>`, or any other logged value.
        mode: Whether more (`max`) or less (`min`) of it is better.
        dirpath: Folder; `checkpoints` in the run directory if None.
    """

    def __init__(self, monitor: str = "eval/return", mode: str = "max", dirpath: str | None = None) -> None:
        # not in the middle of an epoch, so that it can be resumed from exactly
        when: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        super().__init__(dirpath, "best", monitor, mode=mode, **when)
        self._evaluated = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder; one that is not empty is nothing to be warned of, as it is so whenever a run is resumed."""
        self.dirpath = _folder(trainer, stage, self.dirpath)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
            super().setup(trainer, pl_module, stage)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember that there is something to compare."""
        self._evaluated = not trainer.sanity_checking

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


class LastCheckpoint(Checkpoint):
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


class CheckpointConfiguration(Callback):
    """Puts into each checkpoint what `maze_pl.load` needs: the configuration of module and data, and the spec.

    Args:
        config: `model` and `data`, each a class path with its arguments, of YAML types only.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = {name: config[name] for name in ("model", "data")}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the configuration."""
        spec = trainer.datamodule.spec.to_dict()  # type: ignore[attr-defined]
        checkpoint[CHECKPOINT_KEY] = {**self.config, "spec": spec}
