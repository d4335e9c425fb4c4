"""Output of processes that run commands at the same time."""

import os
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import Final

MAIN_LINES: Final = ("epoch ", "-> ", "best: ", "last: ", "ended: ", "maze-pl: ")
"""Beginnings of the lines of `maze-pl fit` that report its progress."""
_N_LAST_LINES: Final = 30
_N_BYTES: Final = 2**16  # read at a time


class RunOutput:
    """Output of a process that runs at the same time as others: its main lines, marked with a name.

    The process writes to an unnamed file and not to a pipe, so that it can end in an orderly way
    if this process is killed. The whole output is in the `run.log` of the run.

    Args:
        name: The name, such as `seed 3`.
        main_lines: Beginnings of the main lines, which are shown when they are written.

    Attributes:
        file: File for standard output and error of the process.
    """

    def __init__(self, name: str, main_lines: Sequence[str] = MAIN_LINES) -> None:
        self.file = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._mark = f"[{name}]"
        self._main_lines = tuple(main_lines)
        self._n_read = 0
        self._unfinished = b""
        self._last: deque[str] = deque(maxlen=_N_LAST_LINES)

    def show(self) -> None:
        """Show the main lines that were written since the last call."""
        while new := os.pread(self.file.fileno(), _N_BYTES, self._n_read):
            self._n_read += len(new)
            *lines, self._unfinished = (self._unfinished + new).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                if text.startswith(self._main_lines):
                    say(f"{self._mark} {text}")
                else:
                    self._last.append(text)

    def close(self, *, show_end: bool) -> list[str]:
        """Show the rest of the output, and return the last of the lines that were not shown at once.

        Args:
            show_end: Show these lines as well, such as a traceback.
        """
        self.show()
        self.file.close()
        if show_end:
            for text in self._last:
                say(f"{self._mark} {text}")
        return list(self._last)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
