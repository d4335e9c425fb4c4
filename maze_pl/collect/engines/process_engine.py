"""The engine that runs players in local processes."""

import os
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import wait
from typing import Any, BinaryIO, Final

from torch import Tensor

from maze_pl.collect.engines.engine import Job, MakePlayer, not_started
from maze_pl.collect.engines.worker_engine import Outcome, WorkerEngine, WorkerHost
from maze_pl.envs.contract import portable_error
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.worker_process import WorkerProcess, dumps, end_workers, prepare_workers

_PRELOADED: Final = ("maze_pl.collect.rollout_worker", "maze_pl.agents", "maze_pl.perception")


class _Worker(WorkerHost):
    """The object in a worker process: holds players and loads the latest weights when a job begins.

    Args:
        make_player: As for `Host`.
        policy: As for `Host`.
        path: Path of the file with the version of the weights, and the weights.
    """

    def __init__(self, make_player: MakePlayer, policy: Any, path: str) -> None:
        super().__init__(make_player, policy)
        self._path = path

    def perform(self, job: Job) -> Any:
        """Run a job; return its result and the version of the weights."""
        with open(self._path, "rb") as file:
            version = pickle.load(file)
            if version != self.version:
                self.update(pickle.load(file), version)
        return super().perform(job), self.version


class ProcessEngine(WorkerEngine):
    """Runs players in other processes of this machine, which read the weights from shared memory.

    The weights are in an unnamed file in memory, which each publication replaces as a whole: a
    worker that opens it finds either the previous or the new weights, even if a process is
    interrupted or killed. Each worker uses one torch thread.

    Args:
        n_workers: Maximum number of processes; 0 means one per core.
        max_replacements: Number of dead processes to replace, over the whole run.
        step_timeout: Seconds that an environment may take for a step, and for a reset; see
            `Engine`.
    """

    def __init__(self, n_workers: int = 0, max_replacements: int = 3, step_timeout: float | None = None) -> None:
        super().__init__(n_workers, max_replacements, step_timeout)
        self._n_workers = n_workers or len(os.sched_getaffinity(0))
        self._new: Callable[[int], Any] = not_started  # starts a worker with a seed
        self._memory: BinaryIO | None = None  # file with the version and the weights

    def start(self, make_player: MakePlayer, policy: Any) -> None:
        """Prepare to run jobs; see `Engine.start`."""
        self.close()
        prepare_workers(self, self._sent, _PRELOADED)
        self._memory = _file_in_memory(pickle.dumps(0))
        path = f"/proc/{os.getpid()}/fd/{self._memory.fileno()}"
        make = dumps(partial(_Worker, make_player, policy, path))
        self._new = partial(WorkerProcess, make, (), portable_error, "maze_pl-worker", True)

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Write the weights once, for all workers; see `Engine.publish`."""
        if self._memory is None:
            not_started()
        assert self._memory is not None
        with _file_in_memory(pickle.dumps(version) + dumps(dict(weights))) as file:
            os.dup2(file.fileno(), self._memory.fileno(), inheritable=False)

    def launch(self) -> Any:
        """Start a process."""
        return self._new(self.next_seed())

    def send(self, worker: WorkerProcess, job: Job) -> None:
        """Send a job to a process."""
        worker.send("perform", job)

    def receive(self, timeout: float | None) -> Outcome | None:
        """Wait for a message of any process; see `WorkerEngine.receive`."""
        ends: dict[Any, WorkerProcess] = {end: worker for worker in self._sent for end in worker.ends}
        worker = next((ends[end] for end in wait(list(ends), timeout)), None)
        if worker is None:
            raise TimeoutError(f"no job was finished in {timeout} s")
        self._sent[worker] = self._sent.pop(worker)  # the others get their turn first next time
        kind, result = worker.receive()
        if kind == "died" or isinstance(result, LostProcessError):
            end_workers([worker])
            return Outcome(worker, died=str(result))
        if kind == "failed":
            error = result if isinstance(result, Exception) else RuntimeError(result)
            return Outcome(worker, error)
        return Outcome(worker, *result) if kind == "result" else None

    def close(self) -> None:
        """End the processes; see `Engine.close`."""
        end_workers(self._sent)
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._new = not_started
        super().close()


def _file_in_memory(content: bytes) -> BinaryIO:
    # it may stay open as long as the engine
    file = open(os.memfd_create("maze_pl-weights"), "wb")  # noqa: SIM115
    file.write(content)
    file.flush()
    return file
