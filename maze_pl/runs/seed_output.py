"""Output of the processes that train several seeds."""

import os
import sys
import tempfile
from collections import deque
from typing import Final

_FORWARDED: Final = ("epoch ", "-> ", "best: ", "last: ", "ended: ", "maze-pl: ")
_N_LAST_LINES: Final = 30
_N_BYTES: Final = 2**16  # read at a time


class SeedOutput:
    """Output of a process that runs at the same time as others: its main lines, marked with the seed.

    The process writes to an unnamed file and not to a pipe, so that it can end in an orderly way
    if this process is killed. The whole output is in the `run.log` of the run.

    Args:
        seed: The seed.

    Attributes:
        file: File for standard output and error of the process.
    """

    def __init__(self, seed: int) -> None:
        self.file = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._mark = f"[seed {seed}]"
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
                if text.startswith(_FORWARDED):
                    say(f"{self._mark} {text}")
                else:
                    self._last.append(text)

    def close(self, *, show_end: bool) -> None:
        """Show the rest of the output.

        Args:
            show_end: Show the last of all other lines as well, such as a traceback.
        """
        self.show()
        self.file.close()
        if show_end:
            for text in self._last:
                say(f"{self._mark} {text}")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
