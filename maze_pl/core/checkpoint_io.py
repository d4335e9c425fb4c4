"""Writing of checkpoints that can be read again, without another copy in the folder of temporary files."""

import io
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import CheckpointIO, TorchCheckpointIO

from maze_pl.core.readable_content import readable
from maze_pl.system.atomic_files import PART_SUFFIX


class ReadableCheckpointIO(TorchCheckpointIO):
    """Lightning's files of checkpoints, with Python numbers instead of NumPy's.

    A file of `maze_pl.runs.checkpoint_files.write_checkpoint` has a name for incomplete files and is renamed
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


class WrappingCheckpointIO(CheckpointIO):
    """Base class of plugins that write by another one, to which all but the writing is passed on.

    Args:
        wrapped: Writes and reads checkpoints.
    """

    def __init__(self, wrapped: CheckpointIO) -> None:
        self._wrapped = wrapped

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Read a checkpoint."""
        return self._wrapped.load_checkpoint(path, *arguments, **options)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a checkpoint."""
        self._wrapped.remove_checkpoint(path)

    def teardown(self) -> None:
        """Finish what is still being written."""
        self._wrapped.teardown()


class ReadableContentIO(WrappingCheckpointIO):
    """Has a plugin of a user write Python numbers, and refuses files that could not be read again.

    Args:
        wrapped: The plugin of the user, which is left unchanged.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Raises:
            ValueError: The file is one of maze_pl, and could not be read again; the message names the entry.
        """
        self._wrapped.save_checkpoint(_readable_content(checkpoint, path), path, storage_options=storage_options)


def readable_io(given: CheckpointIO) -> CheckpointIO:
    """Return a plugin whose checkpoints can be read again: `ReadableCheckpointIO` instead of Lightning's default.

    Args:
        given: Writes and reads the checkpoints of a trainer. Plugins of maze_pl are returned
            themselves, and those of users wrapped.
    """
    if type(given) is TorchCheckpointIO:
        return ReadableCheckpointIO()
    if isinstance(given, ReadableCheckpointIO | WrappingCheckpointIO):
        return given
    return ReadableContentIO(given)


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
