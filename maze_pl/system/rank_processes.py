"""Handling of ranks that die: one line names the rank, and the other ranks end.

A rank that trains with a dead one only sees a closed connection. The process that launched the
ranks of a machine knows more, so the others leave the message to it.
"""

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from lightning_fabric.utilities.distributed import _set_num_threads_if_needed
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch import distributed

from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import StoppedBySignal, StopSignals, is_launched_rank, main_process_has_ended

_SECONDS_BETWEEN_LOOKS: Final = 0.2
_SECONDS_TO_NOTICE: Final = 10.0  # a training process reaches its next exchange within this time
_SECONDS_TO_BE_ENDED: Final = 30.0
_SECONDS_TO_RAISE: Final = 0.5  # until a rank notices that a connection was closed
_MARK_VARIABLE: Final = "MAZE_PL_MAIN_PROCESS_MARK"


def how_it_ended(exit_code: int) -> str:
    """Describe an exit code in words."""
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit status {exit_code}"


class WatchedLauncher(_SubprocessScriptLauncher):
    """Launches the other ranks of this machine and watches them.

    Lightning's observer also kills this process, up to 5 s after a rank has died, and names the
    process but not the rank. Here this process ends by itself at its next exchange, or is ended if
    no exchange follows soon. If a rank was stopped by a signal, this process is stopped by the same
    one.

    Args:
        signals: Handler of the signals that stop a command.
        options: Arguments of Lightning's launcher.

    Attributes:
        stopped_by: Signal that another rank was stopped by, in a rollout or an evaluation; 0 if none.
    """

    def __init__(self, signals: StopSignals, *options: Any) -> None:
        super().__init__(*options)
        self.stopped_by = 0
        self._signals, self._lost = signals, ""
        self._found = threading.Event()
        self._is_ending = False
        self._mark: int | None = None  # file in memory, in which this process writes that it ends by itself

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Launch the ranks, unless they are launched externally, and call a function."""
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        if not self.cluster_environment.creates_processes_externally:
            self._mark = os.memfd_create("maze_pl-mark")
            os.environ[_MARK_VARIABLE] = f"/proc/{os.getpid()}/fd/{self._mark}"
            self._call_children_scripts()
            threading.Thread(target=self._watch, daemon=True, name="maze_pl-ranks").start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        return function(*args, **kwargs)

    def lost_rank(self) -> str:
        """Wait up to 10 s for a rank of this machine to die; return which one and how, or "" if none did."""
        if self.procs:
            self._found.wait(_SECONDS_TO_NOTICE)
        return self._lost

    @property
    def has_interrupted(self) -> bool:
        """True if a signal has ended a rollout or an evaluation of this process alone."""
        return self._signals.has_interrupted

    def end_others(self) -> None:
        """End the other ranks of this machine, which have nothing to report."""
        self._is_ending = True
        self.kill(signal.SIGKILL)

    def mark_end(self) -> None:
        """Let the other ranks know that this process ends by itself."""
        if self._mark is not None:
            os.write(self._mark, b".")

    def _watch(self) -> None:
        while not (ended := self._failed()):
            if self._is_ending or all(process.returncode == 0 for process in self.procs):
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if self._is_ending:
            return
        # If a rank was killed, the others failed because of it.
        rank, exit_code = min(ended.items(), key=lambda item: item[1])
        if exit_code - 128 in (signal.SIGINT, signal.SIGTERM):
            self.stopped_by = exit_code - 128
            self._found.set()
            self._signals.follow(self.stopped_by)
            time.sleep(_SECONDS_TO_NOTICE)
            self.kill(signal.SIGKILL)
            os._exit(exit_code)
        self._lost = f"rank {rank} {how_it_ended(exit_code)}" + (", for the reason above" if exit_code > 0 else "")
        self._found.set()
        time.sleep(_SECONDS_TO_NOTICE)
        self.kill(signal.SIGKILL)
        sys.stderr.write(f"maze-pl: error: {self._lost}; all other ranks were stopped\n")
        sys.stderr.flush()
        os._exit(1)

    def _failed(self) -> dict[int, int]:
        """Exit codes of the ranks that have ended and failed."""
        first = self.cluster_environment.node_rank() * self.num_processes + 1
        codes = {rank: process.poll() for rank, process in enumerate(self.procs, first)}
        return {rank: code for rank, code in codes.items() if code}


@contextlib.contextmanager
def naming_lost_ranks(launcher: Any) -> Iterator[None]:
    """Turn a connection closed by the death of another rank into an error that names it.

    Args:
        launcher: The trainer's launcher.

    Raises:
        LostProcessError: Another rank died; the message names it if it ran on this machine.
        StoppedBySignal: Another rank was stopped by a signal, which it has reported.
    """
    watched = launcher if isinstance(launcher, WatchedLauncher) else None
    is_ending = threading.Lock()  # held by the thread that reports that the main process was killed
    if is_launched_rank() and os.environ["LOCAL_RANK"] == "1" and _MARK_VARIABLE in os.environ:
        arguments = (os.environ[_MARK_VARIABLE], is_ending)
        threading.Thread(target=_report_killed_main_process, args=arguments, daemon=True).start()
    try:
        yield
    except StoppedBySignal:
        if watched is not None and watched.has_interrupted:
            watched.end_others()
        raise
    except Exception as error:
        is_ending.acquire()
        if not _is_lost_connection(error):
            if watched is not None:
                watched.end_others()
            raise
        raise _lost_rank_error(error, watched) from None
    finally:
        is_ending.acquire(blocking=False)
        if watched is not None:
            watched.mark_end()


def _lost_rank_error(error: Exception, watched: WatchedLauncher | None) -> LostProcessError | StoppedBySignal:
    """Return the error that names the rank whose death has closed a connection.

    Args:
        error: Error of the connection.
        watched: Launcher of the other ranks of this machine, which are ended; None if this process
            has not launched any.
    """
    lost = ""
    if watched is not None:
        lost = watched.lost_rank()
        watched.end_others()
        if watched.stopped_by:
            return StoppedBySignal(watched.stopped_by)
    if not lost and is_launched_rank():
        lost = _left_to_main_process()
    if lost:
        return LostProcessError(f"{lost}; all other ranks were stopped")
    said = re.search(r"\] (.*? \[\S*?\]:\d+)", str(error))
    reason = said[1] if said else str(error).partition("\n")[0]
    which = f"another rank has ended, or cannot be reached from rank {distributed.get_rank()}"
    return LostProcessError(f"{which} ({reason}); this rank ends as well")


def _report_killed_main_process(mark: str, is_ending: threading.Lock) -> None:
    """Report that the process that launched this rank was killed, while this rank exchanges nothing.

    Args:
        mark: File in which that process writes that it ends by itself.
        is_ending: Held once this rank ends by itself.
    """
    with contextlib.suppress(OSError), open(mark, "rb") as file:
        while not main_process_has_ended():
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        time.sleep(_SECONDS_TO_RAISE)
        if is_ending.acquire(blocking=False) and not file.read(1):
            os.write(2, f"maze-pl: error: {_killed_main_process()}; all other ranks were stopped\n".encode())
            os._exit(1)


def _killed_main_process() -> str:
    rank = distributed.get_rank() if distributed.is_initialized() else 1
    return f"rank {rank - int(os.environ['LOCAL_RANK'])}, which launched the other ranks of this machine, was killed"


def _is_lost_connection(error: Exception) -> bool:
    """True if an exception comes from a broken exchange with other ranks."""
    is_runtime_error = isinstance(error, RuntimeError) and ("gloo" in str(error) or "NCCL" in str(error))
    return distributed.is_available() and (is_runtime_error or isinstance(error, distributed.DistError))


def _left_to_main_process() -> str:
    """Wait to be ended by the main process, which reports; return a message if it died itself."""
    deadline = time.monotonic() + _SECONDS_TO_BE_ENDED
    while time.monotonic() < deadline:
        if main_process_has_ended():
            if os.environ.get("LOCAL_RANK") != "1":  # one line is enough
                os._exit(1)
            return _killed_main_process()
        time.sleep(0.05)
    os._exit(1)
