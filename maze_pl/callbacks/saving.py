"""Atomic writing of checkpoints, and the error about unknown monitored values."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.config.search_path import suggestion
from maze_pl.system.atomic_files import replaced


def unknown_value(callback: callbacks.Callback, monitor: str, metrics: Mapping[str, Any]) -> ValueError:
    """Return the error of a callback that monitors a value, such as a KPI, that evaluations lack.

    Args:
        callback: The callback.
        monitor: Name of the value.
        metrics: Existing values.
    """
    short = sorted(name for name in metrics if "_" not in name.partition("/")[0])
    known = f"{', '.join(short)}, and the columns of metrics.csv{suggestion(monitor, metrics)}"
    return ValueError(f"{type(callback).__name__}(monitor={monitor!r}): no evaluation gives it; it has {known}")


def save_atomically(trainer: pl.Trainer, path: str | Path) -> None:
    """Write a checkpoint, replacing the previous one atomically; all ranks must call it.

    Raises:
        OSError: It cannot be written, for example because the disk is full.
    """
    try:
        with replaced(path) if trainer.is_global_zero else contextlib.nullcontext(path) as part:
            trainer.save_checkpoint(part, weights_only=False)
    except OSError as error:
        kept = "its former version is kept" if Path(path).is_file() else "it was the first one"
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"the checkpoint {path} cannot be written: {reason}; {kept}") from error
    trainer.strategy.barrier("maze_pl.save_atomically")


def _folder(trainer: pl.Trainer, stage: str, dirpath: str | Path | None) -> str:
    """Return the folder of a callback's checkpoints; it is made before training to fail early."""
    folder = Path(dirpath or Path(trainer.default_root_dir, "checkpoints"))
    if stage == "fit" and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
        folder.mkdir(parents=True, exist_ok=True)
    return trainer.strategy.broadcast(str(folder))
