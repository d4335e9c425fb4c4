"""Temporary folders that only this user can enter, and that are removed even after a kill."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOCK: Final = ".lock"


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder, and remove the folders that killed processes have left.

    A folder belongs to the process that holds the lock in it; the lock is released when that
    process ends in any way.

    Args:
        prefix: Prefix of the folder's name, the same for all folders of one purpose.

    Yields:
        A folder inside a folder with mode 0700, so that no other user can enter it, whatever the mode of the folder
        itself.
    """
    _remove_abandoned(prefix)
    hidden = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
    with (hidden / _LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))  # from now on other processes see it
        inside = folder / "files"
        inside.mkdir()
        try:
            yield inside
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(prefix: str) -> None:
    """Remove this user's folders in which no process holds the lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # it is in use, removed by another process, or belongs to another user
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
