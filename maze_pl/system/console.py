"""Console output that cannot end a command: neither an encoding nor a closed pipe stops training."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO


class ConsoleStream:
    """A console stream whose writing does not fail.

    Letters that its encoding lacks are replaced by question marks. If nothing reads it any longer,
    as after `maze-pl fit ... | head`, its further output is dropped. Other errors, such as that of a
    file on a full disk, are raised once, with the name of the stream as that of the file.

    Args:
        stream: The stream.
        name: Name of the stream in messages.
    """

    def __init__(self, stream: TextIO, name: str = "standard output") -> None:
        self.stream = stream
        self._name = name

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            OSError: It cannot be written.
        """
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            encoding = self.stream.encoding or "ascii"
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
        except OSError as error:
            self._fail(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what the stream has buffered.

        Raises:
            OSError: It cannot be written.
        """
        try:
            self.stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Drop further output; raise an error that does not come from a closed pipe."""
        _drop_output(self.stream)
        if not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, self._name) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _drop_output(stream: TextIO) -> None:
    """Lead a stream to the null device, with what it has buffered, so that it does not fail again."""
    try:
        number = stream.fileno()
    except (OSError, ValueError, io.UnsupportedOperation):  # a stream without a file
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


@contextlib.contextmanager
def tolerant_console() -> Iterator[None]:
    """Let standard output and standard error not fail within a `with` block, also if a process has none of them."""
    with contextlib.ExitStack() as undo:
        output = ConsoleStream(_open_stream(sys.stdout, undo))
        errors = ConsoleStream(_open_stream(sys.stderr, undo), "standard error")
        undo.enter_context(contextlib.redirect_stdout(output))
        undo.enter_context(contextlib.redirect_stderr(errors))
        try:
            yield
        finally:
            output.flush()  # here, since the interpreter reports a pipe that is closed when it ends
            errors.flush()


def _open_stream(stream: TextIO | None, undo: contextlib.ExitStack) -> TextIO:
    """Return a stream, or the null device for one that was closed before Python started."""
    return undo.enter_context(open(os.devnull, "w", encoding="utf-8")) if stream is None else stream
