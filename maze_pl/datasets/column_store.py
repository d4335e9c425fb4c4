"""Columns of acts in temporary files, for data sets that do not fit into memory."""

import tempfile
from contextlib import ExitStack
from typing import Any

import numpy as np

from maze_pl.core.spaces import mapped


class ColumnStore:
    """Columns of acts in unnamed temporary files, which leave nothing behind.

    Args:
        files: Closes the files; their content stays readable until it is no longer needed.

    Attributes:
        columns: By step key, all acts written so far, as memory-mapped arrays [n, ...]; None before
            the first.
    """

    def __init__(self, files: ExitStack) -> None:
        self._stack = files
        self._files: Any = None
        self.columns: Any = None

    def write(self, acts: Any) -> None:
        """Append acts, in trees of arrays [n, ...]."""
        if self._files is None:
            self._files = mapped(self._new_file, acts)
        like = acts if self.columns is None else self.columns
        self.columns = mapped(_appended, self._files, acts, like)

    def _new_file(self, _: Any) -> Any:
        return self._stack.enter_context(tempfile.TemporaryFile())


def _appended(file: Any, rows: Any, like: Any) -> Any:
    """Append rows to a file, with the dtype of `like`, and memory-map all of its rows, [n, ...]."""
    file.write(rows.astype(like.dtype, copy=False).tobytes())
    numbers = np.memmap(file, like.dtype, "r+") if file.tell() else np.zeros(0, like.dtype)
    return numbers.reshape(-1, *rows.shape[1:])
