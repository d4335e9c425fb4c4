"""Files in the shared memory of this machine, which other processes of the tests use at the same time."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path("/dev/shm")


def names() -> set[str]:
    """Return the names of all files in shared memory."""
    return set(os.listdir(FOLDER))


def used_by(pid: int | str) -> bytes:
    """Return the memory map of a process; empty if it has ended."""
    try:
        return Path("/proc", str(pid), "maps").read_bytes()
    except OSError:
        return b""


def left(before: set[str]) -> list[str]:
    """Return the names that are new, and that no running process uses."""
    new = names() - before
    used = b"".join(used_by(pid) for pid in os.listdir("/proc") if new and pid.isdigit())
    return sorted(name for name in new & names() if name.encode() not in used)


def semaphores_of(pid: int) -> set[str]:
    """Return the names of the semaphores that a process uses."""
    return {name.decode() for name in re.findall(rb"/dev/shm/(sem\.\S+)", used_by(pid))}
