"""What engines have in common: actors that are told what to do, wherever they work, and workers that may die.

An *actor* is an object that collects, plays or evaluates; it has a number and keeps its state between jobs. A *worker*
holds actors: this process, another one, or one on another machine. Results never depend on which worker holds an actor,
so they do not depend on the engine, nor on the number of workers.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from maze_pl.core.counts import require_count

_LOGGER: Final = logging.getLogger(__name__)

MakeActor = Callable[[Any, int, int], Any]
"""Makes an actor from the policy, the actor's number, and how often it was made anew because its worker died."""


@dataclass(slots=True)
class Job:
    """What an actor is asked to do.

    Attributes:
        actor: Number of the actor.
        restarts: How often the actor was made anew.
        method: Which of its methods is called.
        arguments: What the method gets.
        state: What the actor was elsewhere before; with it, it goes on here.
    """

    actor: int
    restarts: int
    method: str
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(slots=True)
class Done:
    """A finished job.

    Attributes:
        actor: Number of the actor.
        result: What its method returned.
        version: Version of the weights with which it worked.
        restarts: How often the actor was made anew; with each time it has lost the state that it had.
    """

    actor: int
    result: Any
    version: int
    restarts: int = 0


class Host:
    """Holds the actors of a worker: makes each with its first job, and calls its methods.

    Args:
        make_actor: Makes an actor.
        policy: What the actors act with, which the worker keeps up to date.
    """

    def __init__(self, make_actor: MakeActor, policy: Any) -> None:
        self._make_actor, self.policy = make_actor, policy
        self.actors: dict[int, Any] = {}

    def perform(self, job: Job) -> Any:
        """What the method of the actor returns."""
        if job.actor not in self.actors:
            self.actors[job.actor] = self._make_actor(self.policy, job.actor, job.restarts)
            if job.state is not None:
                self.actors[job.actor].load_state_dict(job.state)
        return getattr(self.actors[job.actor], job.method)(*job.arguments)

    def close(self) -> None:
        """Close all actors."""
        while self.actors:
            self.actors.popitem()[1].close()


class Engine(ABC):
    """Lets numbered actors work with a policy whose weights are published from time to time.

    The jobs of an actor are done in the order in which they are submitted; those of different actors in any order.
    """

    _n_workers = 1

    @property
    def n_workers(self) -> int:
        """How many jobs are worked on at the same time, at most."""
        return self._n_workers

    @abstractmethod
    def start(self, make_actor: MakeActor, policy: Any) -> None:
        """Get ready to work.

        Args:
            make_actor: Makes an actor where it works; may be a lambda.
            policy: What actors act with.
        """

    @abstractmethod
    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Have jobs that begin from now on done with these weights, or with those that are published after them.

        Args:
            weights: `state_dict` of the policy; empty for policies without parameters.
            version: Grows with each call.
        """

    @abstractmethod
    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        """Ask an actor to do something; returns at once.

        Args:
            actor: Number of the actor, which is made where it does not exist yet.
            method: Which of its methods is called.
            arguments: What the method gets.
        """

    @abstractmethod
    def get(self, timeout: float | None = None) -> Done:
        """Wait for the next job that is finished.

        Args:
            timeout: For so many seconds; for as long as it takes if None.

        Raises:
            TimeoutError: Nothing was finished in this time.
            RuntimeError: An actor failed, or workers died more often than they are replaced; all of them are ended.
                From an actor in this process comes whatever it raised, and nothing is ended.
            EnvContractError: An environment broke its contract; all workers are ended.
        """

    @abstractmethod
    def close(self) -> None:
        """End all workers; safe to call twice, and before `start`."""

    def map(self, jobs: "list[tuple[int, str, tuple[Any, ...]]]") -> list[Any]:
        """Do jobs and wait for all of them.

        Args:
            jobs: (actor, method, arguments) of each.

        Returns:
            What they returned, in the order of `jobs`.
        """
        for actor, method, arguments in jobs:
            self.submit(actor, method, *arguments)
        results: dict[int, deque[Any]] = {actor: deque() for actor, _, _ in jobs}
        for done in (self.get() for _ in jobs):
            results[done.actor].append(done.result)
        return [results[actor].popleft() for actor, _, _ in jobs]


def not_started(*_: Any) -> Any:
    """Refuse what can only be asked of an engine that works."""
    raise RuntimeError("this engine was not started, or it was closed since")


class InProcessEngine(Engine):
    """Actors work in this process, one after the other, with the very policy that is trained."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._jobs: deque[Job] = deque()
        self._version = 0

    def start(self, make_actor: MakeActor, policy: Any) -> None:
        """Get ready to work; see `Engine.start`."""
        self.close()
        self._host, self._version = Host(make_actor, policy), 0

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Note the version: the actors have the policy itself."""
        self._version = version if self._host is not None else not_started()

    def submit(self, actor: int, method: str, *arguments: Any) -> None:
        """Note what is to be done; `get` does it."""
        self._jobs.append(Job(actor, 0, method, arguments) if self._host is not None else not_started())

    def get(self, timeout: float | None = None) -> Done:
        """Do the next job, however long it takes; an error of an actor comes as it is."""
        if self._host is None or not self._jobs:
            raise TimeoutError("no job was submitted")
        job = self._jobs.popleft()
        return Done(job.actor, self._host.perform(job), self._version)

    def close(self) -> None:
        """Close the actors."""
        self._jobs.clear()
        host, self._host = self._host, None
        if host is not None:
            host.close()


# ----------------------------------------------------------------------------------------- workers that are elsewhere


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
        return min(self._sent, key=list(self._homes.values()).count)

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
