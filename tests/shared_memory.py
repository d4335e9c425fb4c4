"""What lies in the shared memory of this machine, in which other processes of the tests work at the same time."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path("/dev/shm")


def names() -> set[str]:
    """Of all files there."""
    return set(os.listdir(FOLDER))


def used_by(pid: int | str) -> bytes:
    """The memory map of a process, nothing if it has ended."""
    try:
        return Path("/proc", str(pid), "maps").read_bytes()
    except OSError:
        return b""


def left(before: set[str]) -> list[str]:
    """Names that came since, and that no process uses which lives."""
    new = names() - before
    used = b"".join(used_by(pid) for pid in os.listdir("/proc") if new and pid.isdigit())
    return sorted(name for name in new & names() if name.encode() not in used)


def semaphores_of(pid: int) -> set[str]:
    """Names of the semaphores that a process uses."""
    return {name.decode() for name in re.findall(rb"/dev/shm/(sem\.\S+)", used_by(pid))}
