"""A run directory belongs to one process while it trains, and is as it was before if the command is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from maze_pl.search_path import ConfigurationError

LOCK = ".lock"
_RESULTS = ("*.ckpt", "metrics.csv")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of which the system does not say where


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep other processes from training in a run directory; put it back as it was if they fail before any result.

    The lock ends with the process that holds it, however that ends.

    Raises:
        ConfigurationError: The directory cannot be written, or another process trains in it.
    """
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            before, results = _content(path), _results(path)
            lock = (path / LOCK).open("a+b", buffering=0)
        except OSError as error:
            raise ConfigurationError(f"the run directory {path} cannot be written: {error.strerror}") from error
        with lock:
            _take(lock, path)
            try:
                lock.truncate(0)
                lock.write(f"{os.getpid()}\n".encode())
                yield
            except Exception as error:
                if _results(path) == results:
                    _restore(path, before)
                if isinstance(error, OSError) and error.errno in _NO_SPACE and error.filename is None:
                    reason = error.strerror if str(path) in str(error.strerror) else f"{path}: {error.strerror}"
                    raise OSError(error.errno, reason) from error
                raise
    finally:
        for folder in made:  # the innermost first
            with contextlib.suppress(OSError):  # it holds something, or was never made
                folder.rmdir()


def _take(lock: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise ConfigurationError(
            f"the run directory {path} is in use: process {lock.read().decode().strip()} trains in it; wait for it, "
            "or stop it first (INT or TERM end it with a checkpoint)"
        ) from None


def _content(path: Path) -> dict[Path, bytes]:
    """All that a directory holds, with the content of what is written anew or appended to."""
    return {one: one.read_bytes() if one.parent == path and one.is_file() else b"" for one in path.rglob("*")}


def _results(path: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for pattern in _RESULTS for file in path.rglob(pattern)}


def _restore(path: Path, before: dict[Path, bytes]) -> None:
    for one in sorted(path.rglob("*"), reverse=True):  # what a folder holds comes before it
        if one not in before:
            one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()
        elif one.parent == path and one.is_file() and one.read_bytes() != before[one]:
            temporary = one.with_name(f"{one.name}.part")  # a new file: others may still write into the present one
            with contextlib.suppress(OSError):
                temporary.write_bytes(before[one])
                temporary.replace(one)
            temporary.unlink(missing_ok=True)
