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
from maze_pl.system.signals import is_launched_rank, main_process_has_ended

_SECONDS_BETWEEN_LOOKS: Final = 0.2
_SECONDS_TO_NOTICE: Final = 10.0  # a training process reaches its next exchange within this time
_SECONDS_TO_BE_ENDED: Final = 30.0


def how_it_ended(exit_code: int) -> str:
    """Describe an exit code in words."""
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit status {exit_code}"


class WatchedLauncher(_SubprocessScriptLauncher):
    """Launches the other ranks of this machine and watches them.

    Lightning's observer also kills this process, up to 5 s after a rank has died, and names the
    process but not the rank. Here this process ends by itself at its next exchange, or is ended if
    no exchange follows soon.
    """

    _found: threading.Event
    _lost = ""

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        """Launch the ranks, unless they are launched externally, and call a function."""
        self.cluster_environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        self._found = threading.Event()
        if not self.cluster_environment.creates_processes_externally:
            self._call_children_scripts()
            threading.Thread(target=self._watch, daemon=True, name="maze_pl-ranks").start()
        _set_num_threads_if_needed(num_processes=self.num_processes)
        return function(*args, **kwargs)

    def lost_rank(self) -> str:
        """Wait up to 10 s for a rank of this machine to die; say which and how, or "" if none."""
        if self.procs:
            self._found.wait(_SECONDS_TO_NOTICE)
        return self._lost

    def _watch(self) -> None:
        while not (ended := self._failed()):
            if all(process.returncode == 0 for process in self.procs):
                return
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        # A rank that was killed is the reason why others end.
        rank, exit_code = min(ended.items(), key=lambda item: item[1])
        self._lost = f"rank {rank} {how_it_ended(exit_code)}" + (", for the reason above" if exit_code > 0 else "")
        self._found.set()
        time.sleep(_SECONDS_TO_NOTICE)
        self.kill(signal.SIGKILL)
        sys.stderr.write(f"maze-pl: error: {self._lost}; all others were ended\n")
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
    """
    try:
        yield
    except Exception as error:
        is_lost = _is_lost_connection(error)
        lost = ""
        if isinstance(launcher, WatchedLauncher):
            lost = launcher.lost_rank() if is_lost else ""
            launcher.kill(signal.SIGKILL)  # they have nothing to add
        if not is_lost:
            raise
        if not lost and is_launched_rank():
            lost = _left_to_main_process()
        if lost:
            raise LostProcessError(f"{lost}; all others were ended") from None
        said = re.search(r"\] (.*? \[\S*?\]:\d+)", str(error))
        reason = said[1] if said else str(error).partition("\n")[0]
        which = f"another rank has ended, or cannot be reached from rank {distributed.get_rank()}"
        raise LostProcessError(f"{which} ({reason}); so this one ends") from None


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
            rank = distributed.get_rank() - int(os.environ["LOCAL_RANK"])
            return f"rank {rank}, which had launched the others of this machine, was killed"
        time.sleep(0.05)
    os._exit(1)
