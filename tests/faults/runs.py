"""Real runs of `maze-pl` that are disturbed, and checks of what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests import shared_memory

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--config", "ppo_cartpole", "--data.wrappers", "wrappers/vector_obs", "--trainer.max_epochs", "1000"),
    *("--early_stopping.patience", "0", "--data.n_envs", "4", "--data.n_rollout_steps", "32"),
    *("--data.epoch_length", "3", "--model.batch_size", "64", "--model.n_optimization_epochs", "2"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--trainer.accelerator", "cpu"),
]
TWO_RANKS = ["--trainer.devices", "2"]
SPAWN = ["--trainer.strategy", "ddp_spawn"]
SUBPROCESS = ["--data.vectorization", "subprocess"]


class Run:
    """A process that runs `maze-pl`, with all that it starts. All time limits are far beyond what is needed.

    Args:
        server: Forks it.
        folder: Its working directory.
        arguments: Its command line.
    """

    def __init__(self, server: Server, folder: Path, arguments: list[str]) -> None:
        self._server, self.folder, self._output = server, folder, folder / "output.txt"
        self._output.unlink(missing_ok=True)
        self._before = shared_memory.names()
        self._semaphores: set[str] = set()  # that processes of the run were seen to use
        self._looked_at = 0.0
        self.pid: int = server.ask(start=arguments, folder=str(folder), output=str(self._output))

    @property
    def output(self) -> str:
        """Return the output so far, standard error included."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def processes(self) -> list[int]:
        """All processes of the run, whoever is their parent."""
        found = []
        for entry in os.listdir("/proc"):
            fields = _status(entry) if entry.isdigit() else None
            if fields is not None and fields[3] == str(self.pid) and fields[0] != "Z":
                found.append(int(entry))
        return sorted(found)

    def workers(self) -> list[int]:
        """The processes that environments live in."""
        parents = {pid: int((_status(str(pid)) or ["Z", "0"])[1]) for pid in self.processes()}
        servers = [pid for pid in parents if b"forkserver import main" in _read(pid, "cmdline")]
        return [pid for pid, parent in parents.items() if parent in servers]

    def environment_processes(self) -> list[int]:
        """Those of the workers that have started no further ones."""
        parents = {int((_status(str(pid)) or ["Z", "0"])[1]) for pid in self.processes()}
        return [pid for pid in self.workers() if pid not in parents]

    def ranks(self) -> list[int]:
        """The processes that train, except the one that was started first; not what they start in turn."""
        children = [pid for pid in self.processes() if (_status(str(pid)) or ["Z", "0"])[1] == str(self.pid)]
        return [pid for pid in children if b"\0LOCAL_RANK=1\0" in _read(pid, "environ")]

    def spawned(self) -> list[int]:
        """The processes that train where they are spawned, in the order in which they were."""
        return [pid for pid in self.processes() if b"spawn_main" in _read(pid, "cmdline")]

    def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> Any:
        """Wait until a condition is true, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look_at_semaphores()
            if value := condition():
                return value
            time.sleep(0.01)
        left = f"{self.processes()} and {self._left()}"
        raise AssertionError(f"not within {seconds} s; there are {left}; output:\n{self.output[-5000:]}")

    def _look_at_semaphores(self) -> None:
        """Remember the semaphores that the run uses, a few times per second."""
        if time.monotonic() - self._looked_at > 0.2:
            self._looked_at = time.monotonic()
            for pid in self.processes():
                self._semaphores |= shared_memory.semaphores_of(pid)

    def _left(self) -> list[str]:
        """What the run has left in shared memory, without the semaphores of processes that other tests have killed."""
        names = shared_memory.left(self._before)
        return [name for name in names if not name.startswith("sem.") or name in self._semaphores]

    def takes_signals(self, pid: int | None = None) -> bool:
        """Whether a process, the first one if None, handles TERM by itself."""
        lines = dict(line.split(":\t") for line in _read(pid or self.pid, "status").decode().splitlines())
        return bool(int(lines.get("SigCgt", "0"), 16) & 1 << (signal.SIGTERM - 1))

    def end(self, seconds: float = 120.0) -> int:
        """Wait for the end of the run, check that nothing is left, and return the exit status."""
        status = self._server.ask(wait=self.pid, seconds=seconds)
        output = self.output[-6000:]
        try:
            assert status is not None, f"still running after {seconds} s:\n{output}"
            # A process that is still being started notices only then that the others are gone.
            self.until(lambda: not self.processes())
            self.until(lambda: not self._left())
            assert "resource_tracker" not in output and "leaked" not in output, output
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            if status is None:
                self._server.ask(wait=self.pid, seconds=10)
        return status


class Server:
    """Forks runs from a process that has imported everything."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def fit(self, folder: Path, *options: str, run_dir: str = "run") -> Run:
        """Start a small run, which would train for long."""
        return Run(self, folder, ["fit", *SMALL, "--run_dir", run_dir, *options])

    def resume(self, folder: Path, *options: str, run_dir: str = "run") -> Run:
        """Start a run that goes on with another one."""
        return Run(self, folder, ["fit", "--resume", run_dir, "--trust", *options])

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()


def checkpoint(folder: Path, run_dir: str = "run") -> dict[str, Any]:
    """The last checkpoint of a run."""
    content: dict[str, Any] = torch.load(folder / run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    return content


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


def _status(pid: str) -> list[str] | None:
    """State, parent, group, session and so on of a process."""
    text = _read(int(pid), "stat").decode(errors="replace")
    return text.rpartition(")")[2].split() or None
