"""Writing of checkpoints that can be read again, without another copy in the folder of temporary files."""

import functools
import io
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import CheckpointIO, TorchCheckpointIO

from maze_pl.core.readable_content import readable
from maze_pl.system.atomic_files import PART_SUFFIX


class ReadableCheckpointIO(TorchCheckpointIO):
    """Lightning's files of checkpoints, with Python numbers instead of NumPy's.

    A file of `maze_pl.runs.checkpoint.write_checkpoint` has a name for incomplete files and is renamed
    when it is complete. So it is written in place, where Lightning would write it to the folder of
    temporary files and move it from there. Content that could not be read again is refused in it.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Raises:
            ValueError: The file is one of maze_pl, and could not be read again; the message names the entry.
        """
        content = _readable_content(checkpoint, path)
        if not _is_part(path):
            super().save_checkpoint(content, path, storage_options)
            return
        file = io.BytesIO()  # torch.save to a path does not tell why it fails
        torch.save(content, file)
        Path(path).write_bytes(file.getbuffer())


def readable_io(given: CheckpointIO) -> CheckpointIO:
    """Return `ReadableCheckpointIO` instead of Lightning's default.

    Other plugins are returned themselves. They get content with Python numbers from now on, and files
    of maze_pl that could not be read again are refused.

    Args:
        given: Writes and reads the checkpoints of a trainer.
    """
    if type(given) is TorchCheckpointIO:
        return ReadableCheckpointIO()
    if not isinstance(given, ReadableCheckpointIO):
        vars(given)["save_checkpoint"] = functools.partial(_save_readable, given)
    return given


def _save_readable(plugin: CheckpointIO, checkpoint: dict[str, Any], path: Any, *further: Any, **options: Any) -> None:
    """Write a checkpoint by the plugin of a user."""
    type(plugin).save_checkpoint(plugin, _readable_content(checkpoint, path), path, *further, **options)


def _is_part(path: Any) -> bool:
    """True for an incomplete file of `write_checkpoint`."""
    return Path(path).suffix == PART_SUFFIX


def _readable_content(checkpoint: dict[str, Any], path: Any) -> dict[str, Any]:
    """Return a checkpoint with Python numbers.

    Raises:
        ValueError: The file is one of maze_pl, and could not be read again.
    """
    content: dict[str, Any] = {}
    for name, value in checkpoint.items():
        try:
            content[name] = readable(value, name)
        except ValueError:
            if _is_part(path):
                raise
            content[name] = value  # other programs may read everything
    return content
