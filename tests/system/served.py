"""An object for worker processes to serve, which imports nothing that is slow to import."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any


class Served:
    """Answers, fails and takes long.

    Args:
        seconds_to_close: Seconds that `close` takes.
        closed: File that `close` leaves behind when it is done.
    """

    def __init__(self, seconds_to_close: float = 0.0, closed: Path | None = None) -> None:
        self.seconds_to_close, self.closed = seconds_to_close, closed

    def variables(self) -> dict[str, str]:
        return dict(os.environ)

    def fail(self) -> None:
        raise ArithmeticError("a mistake of the user")

    def sleep(self) -> None:
        time.sleep(1000)

    def blas_threads(self) -> int | None:
        """Threads that NumPy multiplies matrices with; None if it has not come with OpenBLAS."""
        libraries = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
        found = [path for path in libraries if "numpy.libs/libscipy_openblas64_" in path]
        return ctypes.CDLL(found[0]).scipy_openblas_get_num_threads64_() if found else None

    def close(self) -> None:
        time.sleep(self.seconds_to_close)
        if self.closed is not None:
            self.closed.touch()


def explain(error: BaseException) -> Any:
    """The text of an error."""
    return repr(error)
