"""The lock of a run directory: a process that writes to the directory holds it, and it ends with that process."""

import fcntl
import time
from pathlib import Path
from typing import IO, Final

from maze_pl.system.atomic_files import LOCK_FILE

_MOST_TRIES: Final = 5
_SECONDS: Final = 0.01  # between two tries; a process that only looks holds the lock for much less


def lock_for_writing(lock: IO[bytes]) -> None:
    """Lock an open file for this process.

    Raises:
        BlockingIOError: Another process holds it.
    """
    for left in reversed(range(_MOST_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
        time.sleep(_SECONDS)


def lock_holder(run_dir: Path) -> str | None:
    """Return the number of the process that holds the lock of a run directory, None if there is no such process.

    The number in the file does not tell: it stays if a process was killed, and may then be that of another one.

    Args:
        run_dir: The run directory.
    """
    try:
        with (run_dir / LOCK_FILE).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return None
