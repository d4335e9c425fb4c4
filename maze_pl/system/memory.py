"""Reuse of large blocks of memory by the C library."""

import ctypes
import os
import platform
from typing import Final

_MEBIBYTE: Final = 1 << 20
# Numbers of options in malloc.h, and their values in bytes.
_TRIM_THRESHOLD: Final = -1, 512 * _MEBIBYTE
_MMAP_THRESHOLD: Final = -3, 128 * _MEBIBYTE
_VARIABLES: Final = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


def keep_freed_memory() -> bool:
    """Make the C library keep freed blocks for later ones, in this process and until it ends.

    By default glibc returns each freed block of 32 MiB or more to the system at once. The system
    clears the pages of the next block of that size, which takes longer than many operations on
    it. Training with large minibatches then spends a third of its time on clearing pages.
    Afterwards, blocks below 128 MiB are reused, and up to 512 MiB of free memory is kept.

    It does nothing with other C libraries than glibc, and where the environment sets options of
    glibc's `malloc`. Source: https://man7.org/linux/man-pages/man3/mallopt.3.html.

    Returns:
        True if the C library accepted the options.
    """
    if platform.libc_ver()[0] != "glibc" or _is_configured():
        return False
    c_library = ctypes.CDLL(None)
    accepted = [c_library.mallopt(*option) for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD)]
    return all(accepted)


def _is_configured() -> bool:
    """Return whether environment variables configure `malloc`."""
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return True
    return any(name in os.environ for name in _VARIABLES)
