"""Engines whose workers are apart from this process: what is under way where, and what follows when one dies."""

from abc import abstractmethod
from collections import deque
from typing import Any, NamedTuple

from maze_pl.collect.engines.engine import Done, Engine, Job


class Outcome(NamedTuple):
    """What came from a worker.

    Attributes:
        worker: Whose it is.
        result: What the first of the jobs that were sent to it returned; an exception if it failed.
        version: Version of the weights with which it worked.
        died: How the worker ended, if it did; there is no result then.
    """

    worker: Any
    result: Any = None
    version: int = 0
    died: str | None = None


class WorkerEngine(Engine):
    """An engine with workers elsewhere. Subclasses say how workers are started, told, heard and ended.

    Workers are started with the first jobs, each as it is needed. One that dies is replaced, and its actors begin
    anew, with what they had not finished.

    Args:
        n_workers: Number of workers, at most.
        max_replacements: How often a worker that died is replaced, over the whole run.
    """

    def __init__(self, n_workers: int, max_replacements: int) -> None:
        self._n_workers, self.max_replacements = n_workers, max_replacements
        self._replaced = 0
        self._homes: dict[int, Any] = {}  # actor -> worker
        self._restarts: dict[int, int] = {}
        self._sent: dict[Any, deque[Job]] = {}  # worker -> jobs that it has not finished, in order

    @property
    def n_workers(self) -> int:
        """How many jobs are worked on at the same time, at most."""
        return self._n_workers

    @abstractmethod
    def _launch(self) -> Any:
        """Start a worker, a hashable handle of which is returned; None if there is no room for one now."""

    @abstractmethod
    def _send(self, worker: Any, job: Job) -> None:
        """Send a job; must neither wait for the worker, nor fail if it is dead."""

    @abstractmethod
    def _receive(self, timeout: float | None) -> Outcome:
        """The next outcome of any worker, in the order in which each was sent its jobs; raises TimeoutError."""

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        """Send a job to the worker that holds the actor; see `Engine.submit`."""
        if actor not in self._homes:
            self._homes[actor] = self._home()
        self._dispatch(Job(actor, self._restarts.get(actor, 0), method, arguments))

    def _dispatch(self, job: Job) -> None:
        worker = self._homes[job.actor]
        self._sent[worker].append(job)
        self._send(worker, job)

    def _home(self) -> Any:
        """The worker for an actor that has none: a new one as long as there are too few, else the least occupied."""
        if len(self._sent) < self.n_workers:
            worker = self._launch()
            if worker is not None:
                self._sent[worker] = deque()
                return worker
        if not self._sent:
            raise RuntimeError(f"{type(self).__name__} could start no worker")
        homes = list(self._homes.values())
        return min(self._sent, key=homes.count)

    def get(self, timeout: float | None = None) -> Done:
        """Wait for the next job that is finished, and replace workers that die meanwhile; see `Engine.get`."""
        while True:
            if not any(self._sent.values()):
                raise TimeoutError("no job was submitted")
            outcome = self._receive(timeout)
            if outcome.died is not None:
                self._replace(outcome.worker, outcome.died)
                continue
            job = self._sent[outcome.worker].popleft()
            if isinstance(outcome.result, BaseException):
                self.close()
                raise outcome.result
            return Done(job.actor, outcome.result, outcome.version, job.restarts)

    def _replace(self, worker: Any, how: str) -> None:
        """Let the actors of a worker that died begin anew elsewhere."""
        self._replaced += 1
        unfinished = self._sent.pop(worker)
        if self._replaced > self.max_replacements:
            self.close()
            raise RuntimeError(
                f"a worker of {type(self).__name__} {how}, and max_replacements={self.max_replacements} workers were "
                "replaced before; see above for what it said last"
            )
        for actor in [actor for actor, home in self._homes.items() if home == worker]:
            del self._homes[actor]
            self._restarts[actor] = self._restarts.get(actor, 0) + 1
            self._homes[actor] = self._home()
        for job in unfinished:
            job.restarts = self._restarts[job.actor]
            self._dispatch(job)

    def close(self) -> None:
        """Forget all actors; subclasses end the workers."""
        self._homes.clear()
        self._sent.clear()
        self._restarts.clear()
        self._replaced = 0
