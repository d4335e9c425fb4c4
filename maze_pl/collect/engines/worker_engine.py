"""Base of engines that run players in other processes."""

import time
from abc import abstractmethod
from collections import deque
from typing import Any, NamedTuple

import torch

from maze_pl.collect.engines.engine import LOGGER, Done, Engine, Host, Job, MakePlayer
from maze_pl.core.checks import check_count
from maze_pl.core.seeding import derive_seed
from maze_pl.system.global_generators import global_seed


class Outcome(NamedTuple):
    """A message from a worker.

    Attributes:
        worker: The worker.
        result: Result of its first unfinished job; an exception if the job failed.
        version: Version of the weights that it used.
        died: Description of how the worker ended, if it did; there is no result then.
        counts: Whether its death counts as a replacement.
    """

    worker: Any
    result: Any = None
    version: int = 0
    died: str | None = None
    counts: bool = True


class WorkerHost(Host):
    """Holds the players of a worker that has a copy of the policy and one torch thread.

    Attributes:
        version: Version of its weights.
    """

    def __init__(self, make_player: MakePlayer, policy: Any) -> None:
        torch.set_num_threads(1)
        if isinstance(policy, torch.nn.Module):
            policy.eval()
        super().__init__(make_player, policy)
        self.version = 0

    def update(self, weights: dict[str, Any], version: int) -> None:
        """Load weights, if the policy has any."""
        self.version = version
        if weights:
            self.policy.load_state_dict(weights)


class WorkerEngine(Engine):
    """An engine with worker processes; subclasses start and end workers and exchange messages.

    Workers are started on demand with the first jobs. A worker that dies is replaced, and its
    players restart and repeat their unfinished jobs. A worker is also ended and replaced if a
    process of one of its environments died.

    Args:
        n_workers: Maximum number of workers.
        max_replacements: Number of dead workers to replace, over the whole run.
        step_timeout: Seconds that an environment may take for a step, and for a reset; see
            `Engine`.
    """

    def __init__(self, n_workers: int, max_replacements: int, step_timeout: float | None = None) -> None:
        super().__init__(max_replacements, step_timeout)
        check_count("n_workers", n_workers, 0, f" of {type(self).__name__}")
        self._n_workers = n_workers
        self._homes: dict[int, Any] = {}  # player -> worker
        self._sent: dict[Any, deque[Job]] = {}  # worker -> jobs that it has not finished, in order
        self._n_seeds = 0  # used since the engine was started

    @property
    def players(self) -> list[int]:
        """Numbers of the players that were made since the start."""
        return list(self._homes)

    @abstractmethod
    def launch(self) -> Any:
        """Start a worker and return a hashable handle; None if there is no room for it now."""

    @abstractmethod
    def send(self, worker: Any, job: Job) -> None:
        """Send a job; must not wait for the worker, nor fail if it is dead."""

    @abstractmethod
    def receive(self, timeout: float | None) -> Outcome | None:
        """Wait for the next outcome of any worker; each worker's are in the order of its jobs.

        Returns:
            The outcome; None if the caller should ask again.

        Raises:
            TimeoutError: Nothing came within `timeout` seconds.
        """

    def submit(self, player: int, method: str, *arguments: Any) -> None:
        """Send a job to the worker that holds the player; see `Engine.submit`."""
        if player not in self._homes:
            self._homes[player] = self._home()
        self._dispatch(Job(player, self._restarts.get(player, 0), method, arguments))

    def _dispatch(self, job: Job) -> None:
        worker = self._homes[job.player]
        self.send(worker, job)
        self._sent[worker].append(job)

    def _home(self) -> Any:
        """Choose a worker for a player: a new one if there are too few, else the least loaded."""
        if len(self._sent) < self.n_workers:
            worker = self.launch()
            if worker is not None:
                self._sent[worker] = deque()
                return worker
        if not self._sent:
            raise RuntimeError(f"{type(self).__name__} could start no worker")
        return min(self._sent, key=list(self._homes.values()).count)

    def get(self, timeout: float | None = None) -> Done:
        """Wait for the next finished job and replace workers that die; see `Engine.get`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while any(self._sent.values()):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            outcome = self.receive(left)
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
                raise RuntimeError(f"player {job.player} failed: {outcome.result}")
            return Done(job.player, outcome.result, outcome.version, job.restarts)
        raise TimeoutError("no job was submitted")

    def next_seed(self) -> int:
        """Return a seed for the global generators of the next worker.

        It depends on the global seed of this process, on its rank, and on the number of workers
        that were started before, including those that replaced others.
        """
        self._n_seeds += 1
        return derive_seed(*global_seed(), "worker", self._n_seeds)

    def _replace(self, worker: Any, how: str) -> None:
        """Restart the players of a dead worker elsewhere."""
        unfinished = self._sent.pop(worker)
        lost = f"a worker of {type(self).__name__} is lost: {how}"
        left = self._require_replaceable(lost)
        players = [player for player, home in self._homes.items() if home == worker]
        remaining = f"{left} more workers can be replaced"
        LOGGER.warning(f"{lost}; its players {players} restart, and {remaining}")
        for player in players:
            del self._homes[player]
            self._restarts[player] = self._restarts.get(player, 0) + 1
            self._homes[player] = self._home()
        for job in unfinished:
            job.restarts = self._restarts[job.player]
            job.state = None
            self._dispatch(job)

    def close(self) -> None:
        """Forget all players; subclasses end the workers."""
        self._homes.clear()
        self._sent.clear()
        self._n_seeds = 0
        self._forget_losses()
