"""Actors in processes of this machine."""

import os
import pickle
import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from maze_pl.collect.engines.engine import Job, MakeActor, not_started
from maze_pl.collect.engines.worker_engine import Outcome, WorkerEngine, WorkerHost
from maze_pl.core.worker_process import CONTEXT, WorkerProcess, dumps, end_workers, prepare_workers
from maze_pl.envs.contract import portable_error

_PRELOADED: Final = ("maze_pl.collect.environment_actor", "maze_pl.agents", "maze_pl.perception")


class SharedWeights:
    """The latest weights, in shared memory, with a number that is odd while they are written.

    Who reads them reads again if the number has changed meanwhile. So nobody waits for somebody who may have died.

    Args:
        memory: Where they are; zeros before anything was written.
    """

    def __init__(self, memory: Any) -> None:
        self._head, self._content = np.frombuffer(memory, np.int64, 2), np.frombuffer(memory, np.uint8)[16:]
        self._seen = 0

    def write(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the weights."""
        content = np.frombuffer(dumps((dict(weights), version)), np.uint8)
        if content.size > self._content.size:
            raise ValueError("the weights are larger than those of the policy with which the engine was started")
        number = int(self._head[0]) | 1
        self._head[:] = number, content.size
        self._content[: content.size] = content
        self._head[0] = number + 1

    def read(self) -> Any:
        """Weights and version; None if they are those of the last time."""
        while self._seen != (number := int(self._head[0])):
            content = self._content[: self._head[1]].tobytes()
            if number % 2 == 0 and number == self._head[0]:
                self._seen = number
                return pickle.loads(content)
            time.sleep(1e-4)


class _Worker(WorkerHost):
    """What a worker process serves: actors, whose policy has the latest weights when a job begins."""

    def __init__(self, make_actor: MakeActor, policy: Any, memory: Any) -> None:
        super().__init__(make_actor, policy)
        self._weights = SharedWeights(memory)

    def perform(self, job: Job) -> Any:
        """What the job returns, and the version of the weights."""
        if (latest := self._weights.read()) is not None:
            self.update(*latest)
        return super().perform(job), self.version


class ProcessEngine(WorkerEngine):
    """Actors work in other processes of this machine, which take the weights from memory that they share.

    Each of them uses one thread of torch.

    Args:
        n_workers: Number of processes, at most; 0 means one for each core.
        max_replacements: How often a process that died is replaced, over the whole run.
    """

    def __init__(self, n_workers: int = 0, max_replacements: int = 3) -> None:
        super().__init__(n_workers, max_replacements)
        self._n_workers = n_workers or len(os.sched_getaffinity(0))
        self._new, self._publish = not_started, not_started

    def start(self, make_actor: MakeActor, policy: Any) -> None:
        """Get ready to work; see `Engine.start`."""
        self.close()
        prepare_workers(self, self._sent, _PRELOADED)
        size = len(dumps(policy.state_dict())) if isinstance(policy, nn.Module) else 0
        memory = CONTEXT.RawArray("b", size + size // 8 + 4096)  # strides may take a little more
        make, self._publish = dumps(partial(_Worker, make_actor, policy)), SharedWeights(memory).write
        self._new = partial(WorkerProcess, make, [memory], portable_error, "maze_pl-worker", long_jobs=True)

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Write the weights once, for all workers; see `Engine.publish`."""
        self._publish(weights, version)

    def _launch(self) -> WorkerProcess:
        worker: WorkerProcess = self._new()
        return worker

    def _send(self, worker: WorkerProcess, job: Job) -> None:
        worker.send("perform", job)

    def _receive(self, timeout: float | None) -> Outcome | None:
        ends: dict[Any, WorkerProcess] = {end: worker for worker in self._sent for end in worker.ends}
        worker = next((ends[end] for end in wait(list(ends), timeout)), None)
        if worker is None:
            raise TimeoutError(f"no job was finished in {timeout} s")
        self._sent[worker] = self._sent.pop(worker)  # next time the others are heard first
        kind, result = worker.receive()
        if kind == "died":
            end_workers([worker])
            return Outcome(worker, died=result)
        if kind == "failed":
            return Outcome(worker, result if isinstance(result, Exception) else RuntimeError(result))
        return Outcome(worker, *result) if kind == "result" else None

    def close(self) -> None:
        """End the processes; see `Engine.close`."""
        end_workers(self._sent)
        self._new, self._publish = not_started, not_started
        super().close()
