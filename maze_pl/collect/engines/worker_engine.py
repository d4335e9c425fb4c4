"""Engines whose workers are apart from this process: what is under way where, and what follows when one dies."""

import logging
import time
from abc import abstractmethod
from collections import deque
from typing import Any, Final, NamedTuple

import torch

from maze_pl.collect.engines.engine import Done, Engine, Host, Job, MakeActor
from maze_pl.core.counts import require_count

_LOGGER: Final = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What came from a worker.

    Attributes:
        worker: Whose it is.
        result: What the first of the jobs that were sent to it returned; an exception if it failed.
        version: Version of the weights with which it worked.
        died: How the worker ended, if it did; there is no result then.
        counts: Whether that counts among those that died.
    """

    worker: Any
    result: Any = None
    version: int = 0
    died: str | None = None
    counts: bool = True


class WorkerHost(Host):
    """Holds the actors of a worker that has a copy of the policy, and one thread of torch.

    Attributes:
        version: Version of its weights.
    """

    def __init__(self, make_actor: MakeActor, policy: Any) -> None:
        torch.set_num_threads(1)
        super().__init__(make_actor, policy.eval() if isinstance(policy, torch.nn.Module) else policy)
        self.version = 0

    def update(self, weights: dict[str, Any], version: int) -> None:
        """Take over weights, if the policy has any."""
        self.version = version
        if weights:
            self.policy.load_state_dict(weights)


class WorkerEngine(Engine):
    """An engine with workers elsewhere. Subclasses say how workers are started, told, heard and ended.

    Workers are started with the first jobs, each as it is needed. One that dies is replaced, and its actors begin
    anew, with what they had not finished.

    Args:
        n_workers: Number of workers, at most.
        max_replacements: How often a worker that died is replaced, over the whole run.
    """

    def __init__(self, n_workers: int, max_replacements: int) -> None:
        require_count("n_workers", n_workers, 0, f" of {type(self).__name__}")
        require_count("max_replacements", max_replacements, 0, f" of {type(self).__name__}")
        self._n_workers, self.max_replacements = n_workers, max_replacements
        self._replaced = 0
        self._homes: dict[int, Any] = {}  # actor -> worker
        self._restarts: dict[int, int] = {}
        self._sent: dict[Any, deque[Job]] = {}  # worker -> jobs that it has not finished, in order

    @abstractmethod
    def _launch(self) -> Any:
        """Start a worker, a hashable handle of which is returned; None if there is no room for one now."""

    @abstractmethod
    def _send(self, worker: Any, job: Job) -> None:
        """Send a job; must neither wait for the worker, nor fail if it is dead."""

    @abstractmethod
    def _receive(self, timeout: float | None) -> Outcome | None:
        """The next outcome of any worker, in the order in which each was sent its jobs; None if to be asked again.

        Raises:
            TimeoutError: Nothing came in so many seconds.
        """

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        """Send a job to the worker that holds the actor; see `Engine.submit`."""
        if actor not in self._homes:
            self._homes[actor] = self._home()
        self._dispatch(Job(actor, self._restarts.get(actor, 0), method, arguments))

    def _dispatch(self, job: Job) -> None:
        worker = self._homes[job.actor]
        self._send(worker, job)
        self._sent[worker].append(job)

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
        deadline = None if timeout is None else time.monotonic() + timeout
        while any(self._sent.values()):
            outcome = self._receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if outcome is None:
                continue
            if outcome.died is not None:
                self._replaced += outcome.counts
                self._replace(outcome.worker, outcome.died)
                continue
            job = self._sent[outcome.worker].popleft()
            if isinstance(outcome.result, Exception):
                self.close()
                if isinstance(outcome.result, ValueError):  # refused on purpose
                    raise outcome.result
                raise RuntimeError(f"actor {job.actor} failed: {outcome.result}")
            return Done(job.actor, outcome.result, outcome.version, job.restarts)
        raise TimeoutError("no job was submitted")

    def _replace(self, worker: Any, how: str) -> None:
        """Let the actors of a worker that died begin anew elsewhere."""
        unfinished, lost = self._sent.pop(worker), f"a worker of {type(self).__name__} is lost: {how}"
        if self._replaced > self.max_replacements:
            self.close()
            raise RuntimeError(f"{lost}; max_replacements={self.max_replacements} others were replaced before")
        actors = [actor for actor, home in self._homes.items() if home == worker]
        left = self.max_replacements - self._replaced
        _LOGGER.warning(f"{lost}; its actors {actors} begin anew, and {left} more workers can be replaced")
        for actor in actors:
            del self._homes[actor]
            self._restarts[actor] = self._restarts.get(actor, 0) + 1
            self._homes[actor] = self._home()
        for job in unfinished:
            job.restarts, job.state = self._restarts[job.actor], None
            self._dispatch(job)

    def close(self) -> None:
        """Forget all actors; subclasses end the workers."""
        self._homes.clear()
        self._sent.clear()
        self._restarts.clear()
        self._replaced = 0
