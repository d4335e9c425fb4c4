"""Output folders, in the run directory if a command sets it; and atomic replacement of files."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RUN_DIR_VARIABLE: Final = "MAZE_PL_RUN_DIR"
"""Environment variable with the run directory, in all processes of a run."""
PART_SUFFIX: Final = ".part"
"""Suffix of incomplete files, which are useless once the process that writes them has died."""
_CANNOT_SYNCHRONIZE: Final = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # for folders of some network file systems


def output_folder(folder: str | Path) -> Path:
    """Resolve a folder relative to the run directory, or the current one without a run."""
    return Path(os.environ.get(RUN_DIR_VARIABLE, ""), folder)


def write_file(path: str | Path, content: bytes, durable: bool = True) -> None:
    """Write a file atomically: at any time either the previous or the new content is complete.

    Args:
        path: The file; its folders are created.
        content: The whole content.
        durable: As for `replaced`.
    """
    with replaced(path, durable) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def replaced(path: str | Path, durable: bool = True) -> Iterator[Path]:
    """Replace a file atomically by one written under another name; no change on failure.

    Args:
        path: The file; its folders are created.
        durable: Whether to wait until the file is on the disk, so that it also survives a power
            failure. That takes about 10 ms, too long for many files that can be made again.

    Yields:
        The path to write to.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}{PART_SUFFIX}")
    try:
        yield part
        put_in_place(part, path, durable)
    finally:
        part.unlink(missing_ok=True)


def put_in_place(part: Path, path: Path, durable: bool = True) -> None:
    """Rename a complete file so that it replaces another one; see `replaced`."""
    if durable:
        _synchronize(part)
    os.replace(part, path)
    if durable:
        try:
            _synchronize(path.parent)
        except OSError as error:
            if error.errno not in _CANNOT_SYNCHRONIZE:
                raise


def _synchronize(path: Path) -> None:
    """Wait until a file, or the directory entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
