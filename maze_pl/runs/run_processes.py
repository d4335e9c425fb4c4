"""Processes that run commands of `maze-pl`: several at a time, with the signals that they get and their output."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final, Protocol, Self

from maze_pl.runs.run_output import RunOutput
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.signals import MAIN_PROCESS_VARIABLE, STARTER_VARIABLE, StopSignals

SECONDS_BETWEEN_LOOKS: Final = 0.1


class RunProcess(Protocol):
    """A process that was started, on this or another machine; `subprocess.Popen` is one."""

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal that killed it; None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send a signal; may be called in a signal handler."""

    def wait(self) -> int:
        """Wait for the end, and return the exit status."""


StartProcess = Callable[[Sequence[str], Mapping[str, str], IO[bytes] | None], RunProcess]
"""Starts a command line of `maze-pl` with environment variables, and its output in a file or on the console."""


class RunProcesses:
    """Context manager of processes that run at the same time; on exit, those that are left are ended by TERM.

    Signals of the user are passed on to all processes, which save their state and end. They also end
    if this process is killed.

    Args:
        n_parallel: Largest number of processes at a time.
        signals: Handler of the signals that stop a command.
        start_process: Starts a process; by default on this machine.
    """

    def __init__(self, n_parallel: int, signals: StopSignals, start_process: StartProcess | None = None) -> None:
        self._n_parallel = n_parallel
        self._signals = signals
        self._start_process = start_process or _start_here
        self._running: dict[int, RunProcess] = {}
        self._outputs: dict[int, RunOutput] = {}

    def __enter__(self) -> Self:
        self._signals.deferred = True
        self._signals.is_reported = True
        self._signals.on_signal = self.send_signal
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.on_signal = None
        self.send_signal(signal.SIGTERM)  # after an exception of this process
        for process in self._running.values():
            process.wait()

    @property
    def running(self) -> list[int]:
        """Keys of the processes that run."""
        return list(self._running)

    @property
    def has_room(self) -> bool:
        """True if another process may be started now."""
        return len(self._running) < self._n_parallel and not self._signals.received

    def start(
        self,
        key: int,
        command: Sequence[str],
        output: RunOutput | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start a process.

        Args:
            key: Names the process.
            command: The command line after `maze-pl`.
            output: Receives its output; None leaves it on the console.
            variables: Environment variables besides those of this process.
        """
        environment = {**os.environ, **(variables or {})}
        for name in (RUN_DIR_VARIABLE, MAIN_PROCESS_VARIABLE):
            environment.pop(name, None)
        environment[STARTER_VARIABLE] = str(os.getpid())
        if self._n_parallel > 1:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, n_cores() // self._n_parallel)))
        if output is not None:
            self._outputs[key] = output
        self._signals.hold()  # the new process takes them once it can handle them
        try:
            file = None if output is None else output.file
            self._running[key] = self._start_process(command, environment, file)
        finally:
            self._signals.take()
        if self._signals.received:  # in between
            self.send_signal(self._signals.received)

    def send_signal(self, number: int, keys: Sequence[int] | None = None) -> None:
        """Send a signal to processes; may be called at any time.

        Args:
            number: The signal.
            keys: The processes; None means all.
        """
        for key, process in list(self._running.items()):
            if keys is None or key in keys:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    def wait_a_moment(self) -> None:
        """Sleep briefly, between two polls of the processes."""
        time.sleep(SECONDS_BETWEEN_LOOKS)

    def ended(self) -> list[tuple[int, int]]:
        """Show new output, and return key and exit status of the processes that have ended since the last call."""
        for output in self._outputs.values():
            output.show()
        found = []
        for key, process in list(self._running.items()):
            exit_status = process.poll()
            if exit_status is not None:
                del self._running[key]
                found.append((key, exit_status))
        return found

    def close_output(self, key: int, *, show_end: bool) -> list[str]:
        """Show the rest of the output of a process that has ended, if it was captured.

        Args:
            key: The process.
            show_end: Show its last lines as well, such as a traceback.

        Returns:
            The last lines of the output.
        """
        output = self._outputs.pop(key, None)
        return [] if output is None else output.close(show_end=show_end)


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def program() -> list[str]:
    """Return the words before a command line that start `maze-pl` in another process.

    The current folder, which may belong to an untrusted run, is on its import path only if it is on
    that of this process.
    """
    is_script = getattr(sys.modules["__main__"], "__spec__", None) is None
    return [sys.executable, *(["-P"] if is_script else []), "-m", "maze_pl"]


def _start_here(command: Sequence[str], variables: Mapping[str, str], output: IO[bytes] | None) -> RunProcess:
    """Start a process on this machine."""
    streams: dict[str, Any] = {} if output is None else {"stdout": output, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*program(), *command], env=dict(variables), stdin=subprocess.DEVNULL, **streams)
