"""The interface of engines, which run players."""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from maze_pl.core.checks import check_count, check_seconds
from maze_pl.system.lost_process import LostProcessError

LOGGER: Final = logging.getLogger(__name__)

MakePlayer = Callable[[Any, int, int], Any]
"""Makes a player from the policy, its number and its number of restarts after worker deaths."""


@dataclass(slots=True)
class Job:
    """A method call for a player.

    Attributes:
        player: Number of the player.
        restarts: Number of times the player was recreated.
        method: Name of the method to call.
        arguments: Arguments of the method.
        state: State of the player on its previous worker, from which it continues here.
    """

    player: int
    restarts: int
    method: str
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(slots=True)
class Done:
    """A finished job.

    Attributes:
        player: Number of the player.
        result: Return value of its method.
        version: Version of the weights that it used.
        restarts: Number of times the player was recreated; each time it lost its state.
    """

    player: int
    result: Any
    version: int
    restarts: int = 0


class Host:
    """Holds the players of a worker: makes each on its first job, and calls its methods.

    Args:
        make_player: Makes a player.
        policy: Policy of the players, which the worker keeps up to date.
    """

    def __init__(self, make_player: MakePlayer, policy: Any) -> None:
        self._make_player = make_player
        self.policy = policy
        self.players: dict[int, Any] = {}

    def perform(self, job: Job) -> Any:
        """Call the method of the player and return its result."""
        if job.player not in self.players:
            self.players[job.player] = self._make_player(self.policy, job.player, job.restarts)
            if job.state is not None:
                self.players[job.player].load_state_dict(job.state)
        return getattr(self.players[job.player], job.method)(*job.arguments)

    def discard(self, player: int) -> None:
        """Close a player; its next job makes it again."""
        discarded = self.players.pop(player, None)
        if discarded is not None:
            discarded.close()

    def close(self) -> None:
        """Close all players."""
        while self.players:
            self.players.popitem()[1].close()


class Engine(ABC):
    """Runs jobs of numbered players with a policy whose weights are published from time to time.

    The jobs of one player run in the order in which they are submitted, jobs of different players
    in any order. A player that is lost, because its worker or a process of its environments died,
    is made again, and its jobs are repeated.

    Args:
        max_replacements: Number of dead processes to replace, over the whole run.
        step_timeout: Seconds that an environment may take for a step, and for a reset; no limit if
            None. With a limit, environments run in separate processes, so that one that hangs can
            be ended; it then counts as dead.

    Attributes:
        n_starts: Number of calls of `start_numbered`.
    """

    _n_workers = 1

    def __init__(self, max_replacements: int = 3, step_timeout: float | None = None) -> None:
        check_count("max_replacements", max_replacements, 0, f" of {type(self).__name__}")
        check_seconds("step_timeout", step_timeout, f" of {type(self).__name__}")
        self.max_replacements = max_replacements
        self.step_timeout = step_timeout
        self.n_starts = 0
        self._replaced = 0
        self._restarts: dict[int, int] = {}

    @property
    def n_workers(self) -> int:
        """Maximum number of concurrent jobs."""
        return self._n_workers

    @property
    def players(self) -> list[int]:
        """Numbers of the players that were made since the start."""
        return []

    @abstractmethod
    def start(self, make_player: MakePlayer, policy: Any) -> None:
        """Prepare to run jobs.

        Args:
            make_player: Makes a player, in the process that runs it; may be a lambda.
            policy: Policy of the players.
        """

    def start_numbered(self, make_player: MakePlayer, policy: Any) -> int:
        """Start as `start` does; return a number by which the caller notices that others have started it since.

        Args:
            make_player: As for `start`.
            policy: As for `start`.

        Returns:
            Number of this start, equal to `n_starts` until the next one.
        """
        self.n_starts += 1
        self.start(make_player, policy)
        return self.n_starts

    @abstractmethod
    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Publish weights; jobs that begin from now on use these or newer weights.

        Args:
            weights: `state_dict` of the policy; empty for policies without parameters.
            version: Number that increases with each call.
        """

    @abstractmethod
    def submit(self, player: int, method: str, *arguments: Any) -> None:
        """Submit a job for a player; returns immediately.

        Args:
            player: Number of the player, which is made if it does not exist yet.
            method: Name of the method to call.
            arguments: Arguments of the method.
        """

    @abstractmethod
    def get(self, timeout: float | None = None) -> Done:
        """Wait for the next finished job.

        Args:
            timeout: Seconds to wait; no limit if None.

        Raises:
            TimeoutError: No job finished in this time.
            RuntimeError: A player failed; all workers are ended. A player in this process raises
                its original error instead, and nothing is ended.
            LostProcessError: Workers, or processes of environments, died more often than
                `max_replacements`; all of them are ended.
            EnvContractError: An environment broke its contract; all workers are ended.
        """

    @abstractmethod
    def close(self) -> None:
        """End all workers; safe to call twice, and before `start`."""

    def map(self, jobs: "list[tuple[int, str, tuple[Any, ...]]]") -> list[Any]:
        """Run jobs and wait for all of them.

        Args:
            jobs: (player, method, arguments) of each job.

        Returns:
            Their results, in the order of `jobs`.
        """
        for player, method, arguments in jobs:
            self.submit(player, method, *arguments)
        results: dict[int, deque[Any]] = {player: deque() for player, _, _ in jobs}
        for _ in jobs:
            done = self.get()
            results[done.player].append(done.result)
        return [results[player].popleft() for player, _, _ in jobs]

    def _forget_losses(self) -> None:
        """Reset the counts of restarts and replacements for the next run."""
        self._restarts.clear()
        self._replaced = 0

    def _require_replaceable(self, lost: str) -> int:
        """Refuse to replace more processes than allowed.

        Args:
            lost: Message that says what died, and how.

        Returns:
            Number of replacements left.

        Raises:
            LostProcessError: No replacement is left; everything is ended.
        """
        left = self.max_replacements - self._replaced
        if left < 0:
            self.close()
            before = f"max_replacements={self.max_replacements} others were replaced before"
            raise LostProcessError(f"{lost}; {before}")
        return left


def not_started(*_: Any) -> Any:
    """Refuse a call that needs a started engine."""
    raise RuntimeError("this engine was not started, or has been closed; call start first")
