"""run.log: what the console said, for reading without a terminal.

Everything that this process writes to standard output and error is copied, whoever writes it: tables, Lightning's
messages, warnings, prints of an environment. What only a terminal can show is left out: progress bars, which are drawn
over themselves, and the codes of colours.
"""

import contextlib
import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, TextIO

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from maze_pl.errors import message_of

_ESCAPE_CODE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_REDRAW = ("\r", "\x1b[A")
_LIBRARIES = ("pytorch_lightning", "lightning_fabric")  # their messages go where standard error was on import


class ConsoleLog:
    """Copies the console, from entering to leaving a `with` block; kept in memory until there is a file.

    What leaves the block as an exception is written, too, since it is shown only later.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._early: deque[str] = deque(maxlen=1000)
        self._after_redraw = False
        self._former = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._former.enter_context(contextlib.redirect_stdout(_Copied(sys.stdout, self)))
        self._former.enter_context(contextlib.redirect_stderr(_Copied(sys.stderr, self)))
        for handler in (handler for name in _LIBRARIES for handler in logging.getLogger(name).handlers):
            if isinstance(handler, logging.StreamHandler):
                self._former.callback(handler.setStream, handler.setStream(sys.stderr) or sys.stderr)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None and not isinstance(error, SystemExit):
            message = message_of(error)
            text = "".join(traceback.format_exception(error))
            self.write(text if message is None else f"maze-pl: error: {message}\n")
        self._former.close()
        self._close()

    def open(self, path: str | Path) -> None:
        """Write to this file from now on, and what was said so far."""
        if self._file is None:
            self._file = Path(path).open("a", buffering=1, encoding="utf-8", errors="replace")  # noqa: SIM115
            self.write("".join(self._early))

    def write(self, text: str) -> None:
        """Add a text to the file alone."""
        if text.startswith(_REDRAW) or (self._after_redraw and not text.strip()):
            self._after_redraw = True  # a line feed behind a redrawn line belongs to it
            return
        self._after_redraw = False
        text = _ESCAPE_CODE.sub("", text)
        if self._file is None:
            self._early.append(text)
            return
        try:
            self._file.write(text)
        except OSError as error:  # the disk is full: what is going on matters more than its log
            self._close()
            sys.stderr.write(f"run.log ends here: {error}\n")

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # of a line that has not ended
                file.close()


class _Copied:
    """A console stream that is also written to a log."""

    def __init__(self, stream: TextIO, log: ConsoleLog) -> None:
        self.stream, self.log = stream, log

    def write(self, text: str) -> int:
        self.log.write(text)
        return self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class RunLog(Callback):
    """Keeps what the console says in a file; the first callback of a run, so that nothing is missed.

    Args:
        path: The file, which a resumed run goes on with.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._own = contextlib.ExitStack()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Name the file; start copying where nobody does, as in a process that was spawned."""
        if not trainer.is_global_zero:
            return
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        stream: Any = sys.stdout
        if isinstance(stream, _Copied):
            stream.log.open(self.path)
        else:
            self._own.enter_context(ConsoleLog()).open(self.path)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop copying."""
        self._own.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop copying."""
        self._own.__exit__(type(exception), exception, exception.__traceback__)
