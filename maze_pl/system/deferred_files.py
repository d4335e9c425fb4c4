"""Durable replacement of many files, without waiting for the disk."""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from multiprocessing import util
from pathlib import Path
from typing import Final

from maze_pl.system.atomic_files import Renaming, part_path, put_in_place_together

_MOST_PENDING: Final = 256
_EXIT_PRIORITY: Final = 10  # while modules are whole, and before multiprocessing ends its helpers


class DeferredFiles:
    """Writes files under temporary names, and renames them in the background once they are on the disk.

    A file takes its name only after its content is on the disk, so it is complete or absent even
    after a power failure. Waiting for the disk (10 to 20 ms) is done by a thread, for all files
    together that were written in the meantime. An error of one of them does not keep the others from
    their names. Files of the same name replace each other in the order in which they were written.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Renaming] = []
        self._numbers = itertools.count()
        self._n_written = self._n_finished = 0
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def write(self, path: Path, content: bytes, further: Iterable[str] | None = None) -> None:
        """Write a file.

        Args:
            path: The file; its folders are created.
            content: The whole content.
            further: Names in the same folder, of which the file takes the first that is free if another process
                has written the file meanwhile; None if it replaces that file.

        Raises:
            OSError: This file, or an earlier one, cannot be written.
        """
        with self.replaced(path, further) as part:
            part.write_bytes(content)

    @contextlib.contextmanager
    def replaced(self, path: Path, further: Iterable[str] | None = None) -> Iterator[Path]:
        """Replace a file by one written under another name; no change on failure.

        Args:
            path: The file; its folders are created.
            further: As for `write`.

        Yields:
            The path to write to.

        Raises:
            OSError: This file, or an earlier one, cannot be written.
        """
        self._raise_error()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = part_path(path, next(self._numbers))
        try:
            yield part
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        with self._changed:
            # absolute, as the current folder may change before they are renamed
            self._pending.append(Renaming(part.absolute(), path.absolute(), further))
            self._n_written += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="maze_pl deferred files", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._pending) < _MOST_PENDING)

    def has(self, path: Path) -> bool:
        """True if a file exists, or was written here and does not have its name yet."""
        absolute = path.absolute()
        with self._changed:
            is_pending = any(file.path == absolute for file in self._pending)
        return is_pending or path.exists()

    def flush(self) -> None:
        """Wait until all files that were written have their names.

        Raises:
            OSError: One of them cannot be written.
        """
        with self._changed:
            n_written = self._n_written
            self._changed.wait_for(lambda: self._n_finished >= n_written)
        self._raise_error()

    def _raise_error(self) -> None:
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending)
                batch = list(self._pending)
            error = None
            try:
                put_in_place_together(batch)
            except Exception as raised:
                error = raised
                for file in batch:
                    file.part.unlink(missing_ok=True)
            with self._changed:
                self._error = self._error or error
                del self._pending[: len(batch)]
                self._n_finished += len(batch)
                self._changed.notify_all()


_of_process: DeferredFiles | None = None


def deferred_files() -> DeferredFiles:
    """Deferred files of this process, which are completed when the process exits."""
    global _of_process
    if _of_process is None:
        _of_process = DeferredFiles()
        util.Finalize(None, _of_process.flush, exitpriority=_EXIT_PRIORITY)  # also in multiprocessing's children
    return _of_process


def _forget() -> None:
    """Leave the files of the parent, in a forked process, to the parent."""
    global _of_process
    _of_process = None


os.register_at_fork(after_in_child=_forget)
