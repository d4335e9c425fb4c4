"""Files of replay buffers: named by their content, and kept next to the checkpoints that name them."""

import hashlib
import mmap
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from lightning_fabric.plugins import CheckpointIO
from pytorch_lightning.plugins.io import AsyncCheckpointIO

from maze_pl.collect.replay.buffer import ReplayBuffer, n_separate_of
from maze_pl.core.changed_spaces import changed_spaces, shortened
from maze_pl.core.checkpoint_content import REPLAY_BUFFERS, data_module_state
from maze_pl.core.checkpoint_io import WrappingCheckpointIO, readable_io
from maze_pl.core.provenance import PROVENANCE_KEY, shared_provenance
from maze_pl.records.framing import written_size
from maze_pl.system.atomic_files import PART_SUFFIX, put_in_place, replaced

BUFFER_FORMAT: Final = 2
"""Increases when an older version could not read a buffer, or misread it."""
_BUFFER_NAME: Final = re.compile(r"replay-[0-9a-f]{64}\.pt")


def write_buffer(folder: Path, rank: int, buffer: ReplayBuffer, described: Mapping[str, Any]) -> str:
    """Write a buffer; return the file name.

    Args:
        folder: Folder of the file, which is made if it does not exist.
        rank: Rank that the buffer belongs to.
        buffer: The buffer.
        described: Properties that a buffer must share to take over its content: plain values.

    Raises:
        OSError: The file cannot be written.
    """
    state = {"format": BUFFER_FORMAT, "described": dict(described), **buffer.state_dict()}
    if (provenance := shared_provenance()) is not None:
        state[PROVENANCE_KEY] = provenance
    part = folder / f".replay-{rank}.{os.getpid()}{PART_SUFFIX}"
    handled = sys.exception()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:  # torch.save to a path does not tell why it fails
            torch.save(state, file)
        name = f"replay-{_digest(part)}.pt"
        put_in_place(part, folder / name)
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        cause = _system_error(error, handled)
        fault = f"the replay buffer cannot be written to {folder}"
        if cause is None:
            raise OSError(f"{fault}: {error}") from error
        raise OSError(cause.errno, f"{fault}: {cause.strerror}") from error
    return name


def _system_error(error: BaseException | None, handled: BaseException | None) -> OSError | None:
    """Return the error of the system that an error followed; torch raises another one when it ends the file.

    Args:
        error: The error.
        handled: Error that was being handled when the file was opened; the search ends before it.
    """
    while error is not None and error is not handled:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        error = error.__context__
    return None


def find_buffer(name: str, folders: list[Path]) -> Path:
    """Return the path of an intact buffer.

    Args:
        name: Name of the file.
        folders: Folders to look in, the most likely one first.

    Raises:
        ValueError: The file is missing, was altered, or is sparse.
    """
    sparse = ""
    for folder in folders:
        path = folder / name
        if path.is_file():
            try:
                written_size(path)  # a sparse file is not read, as that could take forever
            except ValueError as error:
                sparse = sparse or f"the replay buffer {path} cannot be read: {error}"
                continue
            if _digest(path) in name:
                return path
    if sparse:
        raise ValueError(sparse)
    remedy = "restore it from a copy, or start a new run from the weights alone with --warm-start"
    problem = f"the replay buffer {folders[0] / name}, which the checkpoint names, is missing or was altered"
    raise ValueError(f"{problem}; {remedy}")


def read_buffer(path: Path, make_buffer: Callable[[int], ReplayBuffer], described: Mapping[str, Any]) -> ReplayBuffer:
    """Read a buffer.

    Args:
        path: Path of an intact file.
        make_buffer: Makes an empty buffer, with room for a number of separate demonstrations of each sub-step.
        described: Properties of the buffer, as for `write_buffer`.

    Raises:
        ValueError: The file has another format or other properties, or is damaged.
    """
    state = torch.load(path, weights_only=True, mmap=True)
    found = state.get("format", 1)
    if found > BUFFER_FORMAT:
        readable = f"this version reads formats up to {BUFFER_FORMAT}"
        raise ValueError(f"the replay buffer {path} has format {found}, {readable}")
    then = state["described"]
    other = []
    for name, value in described.items():
        if value == then[name]:
            continue
        spaces = changed_spaces(then[name], value) if name == "spec" else []
        if spaces:
            other.append(shortened(spaces))
        else:
            other.append(f"{name} was {then[name]!r:.80} and is {value!r:.80}")
    if other:
        raise ValueError(f"the replay buffer {path} does not fit: {', '.join(other)}")
    try:
        buffer = make_buffer(n_separate_of(state))
        buffer.load_state_dict(state)
    except (KeyError, ValueError) as error:
        raise ValueError(f"the replay buffer {path} is damaged: {error}") from error
    return buffer


def checkpoint_folders(trainer: Any) -> list[Path]:
    """Return the folders of checkpoints; buffers are written to the first one, within the run if possible.

    Another run may use a folder outside, and remove files that none of its checkpoints names yet.
    """
    root = Path(trainer.default_root_dir)
    paths = [vars(one).get("dirpath") for one in trainer.checkpoint_callbacks]
    folders = [Path(path) for path in paths if path]
    folders.sort(key=lambda folder: not folder.absolute().is_relative_to(root.absolute()))
    return folders or [root / "checkpoints"]


def remove_unnamed_buffers(folders: list[Path]) -> None:
    """Remove the buffers that no checkpoint in these folders names."""
    unnamed = [path for folder in folders for path in folder.glob("replay-*.pt") if _BUFFER_NAME.fullmatch(path.name)]
    for folder in folders:
        for checkpoint in folder.glob("*.ckpt"):
            if unnamed:
                names = _names_in(checkpoint, {path.name for path in unnamed})
                unnamed = [path for path in unnamed if path.name not in names]
    for buffer in unnamed:
        buffer.unlink(missing_ok=True)


def _names_in(path: Path, names: set[str]) -> set[str]:
    """Return the names that occur in a file, without reading all of it into memory."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # nothing that can be mapped
            return set()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {name for name in names if content.find(name.encode()) >= 0}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    content: Any = np.memmap(path, mode="r") if path.stat().st_size else b""
    return hashlib.sha256(content).hexdigest()


class BuffersBesideCheckpoints(WrappingCheckpointIO):
    """Puts the replay buffers that a checkpoint names next to it, in any folder it is written to.

    It makes a hard link to the buffer in the folder of checkpoints, or a copy if links are
    impossible. So the buffer survives when training continues and the original is removed.

    A checkpoint that is written before the first batch names the buffer of the checkpoint that was
    read. If its folder was moved, the buffer is not in the named folder, but next to that checkpoint.

    Args:
        wrapped: Writes and reads checkpoints.
        name: The data module's name in checkpoints.

    Raises:
        ValueError: Checkpoints would be written later, when the buffers that they name may be gone.
    """

    def __init__(self, wrapped: CheckpointIO, name: str) -> None:
        if isinstance(wrapped, AsyncCheckpointIO):
            fault = "save_buffer=True does not work with the plugin AsyncCheckpointIO"
            reason = "a buffer may be removed before the checkpoint that names it is written"
            raise ValueError(f"{fault}: {reason}; leave the plugin out, or write checkpoints less often")
        super().__init__(readable_io(wrapped))
        self._name = name
        self._read_from: Path | None = None  # folder of the checkpoint that was read

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write a checkpoint, after the buffers that it names."""
        saved = data_module_state(checkpoint, self._name).get(REPLAY_BUFFERS, {"folder": "", "files": []})
        if saved["files"] and "://" in str(path):
            raise ValueError(f"save_buffer=True needs checkpoints in local folders, not {path}")
        folders = [Path(saved["folder"])] if self._read_from is None else [Path(saved["folder"]), self._read_from]
        for name in saved["files"]:
            _put_beside([folder / name for folder in folders], Path(path).with_name(name))
        self._wrapped.save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Read a checkpoint."""
        self._read_from = Path(path).parent
        return super().load_checkpoint(path, *arguments, **options)


def _put_beside(sources: list[Path], target: Path) -> None:
    """Link the first file that exists to another path, or copy it; a missing one, on another machine, is skipped."""
    source = next((path for path in sources if path.is_file()), None)
    if source is None or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with replaced(target) as part:
            shutil.copyfile(source, part)
