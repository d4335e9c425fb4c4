"""Commands of maze-pl in this process, whose state they leave unchanged."""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

import torch
import yaml

from maze_pl.callbacks.console_log import libraries_on
from maze_pl.cli import fit
from maze_pl.config.assembling import prepare
from maze_pl.config.messages import message_of
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.provenance import PROVENANCE_VARIABLE
from maze_pl.modules.random_state import global_random_state, restore_random_state
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import (
    MAIN_PROCESS_VARIABLE,
    StoppedBySignal,
    StopSignals,
    follow_main_process,
    is_launched_rank,
)

_OF_RANKS: Final = (RUN_DIR_VARIABLE, PROVENANCE_VARIABLE, MAIN_PROCESS_VARIABLE)
_VARIABLES: Final = (*_OF_RANKS, "PL_GLOBAL_SEED", "PL_SEED_WORKERS")
_TURN: Final = threading.RLock()
"""Commands take turns: random generators and standard output belong to the process."""


def run_command(
    command: Sequence[str],
    objects: Mapping[str, Any],
    *,
    is_silent: bool = False,
    on_end: Callable[[str], object] | None = None,
) -> fit.MazeCLI:
    """Run a command to its end, as on the command line, but with exceptions instead of messages.

    Args:
        command: The command line after `maze-pl`.
        objects: Name -> object that the configuration stands for.
        is_silent: Whether nothing is printed.
        on_end: Called with the run directory once the command has ended, also if a signal has stopped it.

    Returns:
        The command with its module, data module and trainer.

    Raises:
        ConfigurationError: The command asks for something impossible.
        KeyboardInterrupt: INT has stopped it, after it has saved its state.
    """
    with (
        _own_process_state(is_silent),
        StopSignals(deferred=follow_main_process()) as signals,
        _as_configuration_errors(),
    ):
        try:
            with contextlib.chdir(os.getcwd()):  # environments may change it
                done = fit.carry_out(_prepared(command, objects), command, signals)
        except StoppedBySignal:
            if is_launched_rank():  # the process that launched it reports the end
                raise
            if on_end is not None:
                on_end(os.environ.get(RUN_DIR_VARIABLE, ""))
            if signals.received == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise
    if on_end is not None:
        on_end(done.run_dir or "")
    if signals.received and not is_launched_rank():
        stop = KeyboardInterrupt() if signals.received == signal.SIGINT else StoppedBySignal(signals.received)
        raise stop
    return done


class _Assembled(fit.MazeCLI):
    """A command that is parsed and, if `is_instantiated`, instantiated, but not run."""

    is_instantiated = True

    def instantiate_classes(self) -> None:
        """Make data, module and trainer if they are needed."""
        if self.is_instantiated:
            super().instantiate_classes()

    def _run_subcommand(self, subcommand: str) -> None:
        """Do nothing."""


class _Parsed(_Assembled):
    """A command that is only parsed."""

    is_instantiated = False


def assembled_data(command: Sequence[str], objects: Mapping[str, Any], *, is_silent: bool = False) -> Any:
    """Return the data module that a command of training would use."""
    return _assembled(_Assembled, command, objects, is_silent).datamodule


def assembled_configuration(
    command: Sequence[str], objects: Mapping[str, Any], *, is_silent: bool = False
) -> dict[str, Any]:
    """Return the configuration that a command of training would save as `config.yaml`."""
    content: dict[str, Any] = yaml.safe_load(_assembled(_Parsed, command, objects, is_silent).config_text)
    return content


def _assembled(
    assemble: Callable[..., _Assembled], command: Sequence[str], objects: Mapping[str, Any], is_silent: bool
) -> _Assembled:
    displayed = [*command, "--print_model=true"]  # for which no run directory is made
    with _own_process_state(is_silent), contextlib.ExitStack() as undo, _as_configuration_errors():
        return assemble(_prepared(displayed, objects), displayed, StopSignals(), undo)


def _prepared(command: Sequence[str], objects: Mapping[str, Any]) -> Any:
    prepared = prepare(command, is_from_python=True)
    prepared.objects = objects
    return prepared


@contextlib.contextmanager
def _as_configuration_errors() -> Iterator[None]:
    """Raise ConfigurationError for what the command line would report without a traceback."""
    try:
        yield
    except (ConfigurationError, LostProcessError, OSError, MemoryError):
        raise
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        raise ConfigurationError(message) from error


@contextlib.contextmanager
def _own_process_state(is_silent: bool) -> Iterator[None]:
    """Wait for the turn of this thread, and restore random generators and environment variables on exit.

    A rank that Lightning has launched by running the script again keeps the variables that name the main process
    and its run.
    """
    with _TURN, contextlib.ExitStack() as undo:
        before = {name: os.environ.get(name) for name in _VARIABLES}
        state = global_random_state(torch.device("cpu"))
        undo.enter_context(silenced(is_silent))
        kept = _OF_RANKS if is_launched_rank() else ()
        for name in set(_VARIABLES).difference(kept):
            os.environ.pop(name, None)
        try:
            yield
        finally:
            restore_random_state(state, torch.device("cpu"))
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@contextlib.contextmanager
def silenced(is_silent: bool) -> Iterator[None]:
    """Drop what this thread prints, if `is_silent`."""
    if not is_silent:
        yield
        return
    errors = _Silenced(sys.stderr)
    with contextlib.redirect_stdout(_Silenced(sys.stdout)), contextlib.redirect_stderr(errors), libraries_on(errors):
        yield


class _Silenced(io.TextIOBase):
    """A console stream that drops what the current thread writes.

    Args:
        stream: The stream, to which all other threads write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        """Write a text, unless it is from the silenced thread."""
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def isatty(self) -> bool:
        """Return False, so that no progress bar is drawn."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
