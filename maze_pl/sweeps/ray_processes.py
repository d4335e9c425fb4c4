"""Processes of trials on a Ray cluster, whose machines share the folder of the sweep."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from maze_pl.system.ray_cluster import check_address, join_cluster, ray_module
from maze_pl.system.signals import STARTER_VARIABLE

_SECONDS_TO_END: Final = 25.0
_LOST: Final = -signal.SIGKILL  # exit status of a process whose machine is gone
_HIDDEN: Final = ("RAY_", "CUDA_VISIBLE_DEVICES")


class RayProcesses:
    """Context manager that starts processes on a Ray cluster, each of which takes a CPU.

    Args:
        address: Address of the cluster as `host:port`, or `auto`; None starts Ray on this machine.
        n_parallel: Number of processes at a time, for which there must be room.

    Raises:
        ValueError: The address is invalid, or the cluster has too few CPUs.
        ConnectionError: There is no cluster.
    """

    def __init__(self, address: str | None, n_parallel: int) -> None:
        check_address(address)
        self._undo = contextlib.ExitStack()
        join_cluster(address, self._undo)
        n_cpus = int(ray_module().cluster_resources().get("CPU", 0))
        if n_cpus < n_parallel:
            self._undo.close()
            raise ValueError(f"n_parallel={n_parallel} trials take a CPU each: the Ray cluster has {n_cpus}")
        self._actor = ray_module().remote(num_cpus=1, max_restarts=0)(_actor_class())

    def __enter__(self) -> "RayProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def __call__(self, command: Sequence[str], variables: Mapping[str, str], output: IO[bytes] | None) -> "_RayProcess":
        """Start a process; see `maze_pl.runs.run_processes.StartProcess`."""
        passed = {name: value for name, value in variables.items() if not name.startswith(_HIDDEN)}
        return _RayProcess(self._actor.remote(list(command), passed, os.getcwd()), output)


class _RayProcess:
    """A process on some machine of the cluster; see `maze_pl.runs.run_processes.RunProcess`."""

    def __init__(self, actor: Any, output: IO[bytes] | None) -> None:
        self._actor = actor
        self._output = output
        self._signals: list[int] = []  # to be sent; Ray must not be called by a signal handler
        self._exit_status: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal with the next `poll`."""
        self._signals.append(number)

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        if self._exit_status is not None:
            return self._exit_status
        ray = ray_module()
        signals = self._signals
        self._signals = []
        try:
            self._exit_status, text = ray.get(self._actor.poll.remote(signals))
        except ray.exceptions.RayError as error:
            self._exit_status, text = (
                _LOST,
                f"maze-pl: error: the Ray worker of this trial was lost: {error}\n".encode(),
            )
        if self._output is not None and text and not self._output.closed:
            self._output.write(text)
            self._output.flush()
        if self._exit_status is not None:
            ray.kill(self._actor)
        return self._exit_status

    def wait(self) -> int:
        """Wait for the end, and return the exit status."""
        end = time.monotonic() + _SECONDS_TO_END
        while self.poll() is None:
            if time.monotonic() > end:
                self.send_signal(signal.SIGKILL)
                end = float("inf")
            time.sleep(0.1)
        return self._exit_status or 0


def _actor_class() -> Any:
    """Class of the Ray actor that owns a process, sent by value."""
    starter = STARTER_VARIABLE

    class TrialProcess:
        def __init__(self, command: list[str], variables: dict[str, str], folder: str) -> None:
            self.output = tempfile.TemporaryFile("a+b")  # noqa: SIM115
            self.n_read = 0
            self.process = subprocess.Popen(
                [sys.executable, "-m", "maze_pl", *command],
                env={**variables, starter: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

        def poll(self, signals: list[int]) -> tuple[int | None, bytes]:
            for number in signals:
                self.process.send_signal(number)
            exit_status = self.process.poll()
            text = self.read()
            while exit_status is not None and (more := self.read()):  # no other call follows
                text += more
            return exit_status, text

        def read(self) -> bytes:
            text = os.pread(self.output.fileno(), 2**20, self.n_read)
            self.n_read += len(text)
            return text

    return TrialProcess
