"""Reuse of large blocks of memory by the C library."""

import ctypes
import os
import platform
from typing import Final

_MEBIBYTE: Final = 1 << 20
_TRIM_THRESHOLD: Final = -1  # numbers of options in malloc.h
_MMAP_THRESHOLD: Final = -3
_MOST_FREE: Final = 512 * _MEBIBYTE
_LARGEST_REUSED: Final = 128 * _MEBIBYTE, 32 * _MEBIBYTE  # before 2.35, the first one is refused
_NAMES: Final = ("mmap_max", "mmap_threshold", "trim_threshold")  # of what decides what is returned


def keep_freed_memory() -> bool:
    """Make the C library keep freed blocks for later ones, in this process and until it ends.

    By default glibc returns each freed block of 32 MiB or more to the system at once. The system
    clears the pages of the next block of that size, which takes longer than many operations on
    it. Training with large minibatches then spends a third of its time on clearing pages.
    Afterwards, blocks below 128 MiB are reused, and up to 512 MiB of free memory is kept. glibc
    before 2.35 still returns blocks of 32 MiB and more.

    It does nothing with other C libraries than glibc, and where the environment says which
    blocks glibc returns. Source: https://man7.org/linux/man-pages/man3/mallopt.3.html.

    Returns:
        True if the C library accepted the options.
    """
    if platform.libc_ver()[0] != "glibc" or _is_configured():
        return False
    c_library = ctypes.CDLL(None)
    # The trim threshold alone would keep the other one at 128 KiB, so that larger blocks are returned.
    if not any(c_library.mallopt(_MMAP_THRESHOLD, size) for size in _LARGEST_REUSED):
        return False
    return bool(c_library.mallopt(_TRIM_THRESHOLD, _MOST_FREE))


def _is_configured() -> bool:
    """Return whether environment variables configure when `malloc` returns memory."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if any(f"glibc.malloc.{name}=" in tunables for name in _NAMES):
        return True
    return any(f"MALLOC_{name.upper()}_" in os.environ for name in _NAMES)
