"""Copy of a run's console output in `run.log`.

Everything that this process writes to standard output and error during training is copied: tables,
messages of Lightning, warnings, prints of an environment. Progress bars, which redraw themselves,
and colour codes are left out.
"""

import contextlib
import io
import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TextIO

from maze_pl.config.messages import exit_message, message_of
from maze_pl.system.console import ConsoleStream

_ESCAPE_CODE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_REDRAW = ("\r", "\x1b[A")
_LIBRARIES = ("pytorch_lightning", "lightning_fabric")  # they keep the standard error of the time of their import


@contextlib.contextmanager
def libraries_on(stream: TextIO | io.TextIOBase) -> Iterator[None]:
    """Let Lightning's log handlers write to another stream within a `with` block.

    Args:
        stream: The stream.
    """
    with contextlib.ExitStack() as undo:
        for name in _LIBRARIES:
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, logging.StreamHandler):
                    undo.callback(handler.setStream, handler.stream)
                    handler.setStream(stream)
        yield


class ConsoleLog:
    """Copies the console within a `with` block; keeps the text in memory until a file is opened.

    An exception that leaves the block is also written, since the console shows it only later.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._early: deque[str] = deque(maxlen=1000)
        self._after_redraw = False
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        output = CopiedStream(sys.stdout, self, "standard output")
        errors = CopiedStream(sys.stderr, self, "standard error")
        self._undo.enter_context(contextlib.redirect_stdout(output))
        self._undo.enter_context(contextlib.redirect_stderr(errors))
        self._undo.enter_context(libraries_on(sys.stderr))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit):
            if (exited := exit_message(error)) is not None:
                self.write(f"maze-pl: error: {exited}\n")
        elif error is not None:
            message = message_of(error)
            text = "".join(traceback.format_exception(error))
            self.write(text if message is None else f"maze-pl: error: {message}\n")
        self._undo.close()
        self._close()

    def open(self, path: str | Path) -> None:
        """Append to this file from now on, beginning with the console output so far."""
        if self._file is None:
            options: Any = {"buffering": 1, "encoding": "utf-8", "errors": "replace"}
            self._file = Path(path).open("a", **options)  # noqa: SIM115
            self.write("".join(self._early))

    def write(self, text: str) -> None:
        """Write a text to the file only."""
        if text.startswith(_REDRAW) or (self._after_redraw and not text.strip()):
            self._after_redraw = True  # a line feed after a redrawn line belongs to it
            return
        self._after_redraw = False
        text = _ESCAPE_CODE.sub("", text)
        if self._file is None:
            self._early.append(text)
            return
        try:
            self._file.write(text)
        except OSError as error:  # the disk is full: the run matters more than its log
            self._close()
            sys.stderr.write(f"run.log ends here: {error}\n")

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # an unfinished line may fail to be flushed
                file.close()


class CopiedStream(ConsoleStream):
    """A console stream that is also written to a log.

    Args:
        stream: The stream.
        log: The log.
        name: Name of the stream in messages.

    Attributes:
        stream: The stream.
        log: The log.
    """

    def __init__(self, stream: TextIO, log: ConsoleLog, name: str) -> None:
        super().__init__(stream, name)
        self.log = log

    def write(self, text: str) -> int:
        """Write a text to the log and the stream."""
        self.log.write(text)
        return super().write(text)
