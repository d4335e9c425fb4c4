"""The engine that runs players in this process."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from maze_pl.collect.engines.engine import LOGGER, Done, Engine, Host, Job, MakePlayer, not_started
from maze_pl.system.lost_process import LostProcessError


class InProcessEngine(Engine):
    """Runs players in this process, one after the other, with the policy object that is trained.

    Args:
        max_replacements: Number of dead environment processes to replace, over the whole run.
            Environments have processes with `vectorization: subprocess`, or with a `step_timeout`.
        step_timeout: Seconds that an environment may take for a step, and for a reset; see
            `Engine`.
    """

    def __init__(self, max_replacements: int = 3, step_timeout: float | None = None) -> None:
        super().__init__(max_replacements, step_timeout)
        self._host: Host | None = None
        self._jobs: deque[Job] = deque()
        self._version = 0

    @property
    def players(self) -> list[int]:
        """Numbers of the players that were made since the start."""
        return [] if self._host is None else list(self._host.players)

    def start(self, make_player: MakePlayer, policy: Any) -> None:
        """Prepare to run jobs; see `Engine.start`."""
        self.close()
        self._host = Host(make_player, policy)
        self._version = 0

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Store the version only: the players use the policy itself."""
        if self._host is None:
            not_started()
        self._version = version

    def submit(self, player: int, method: str, *arguments: Any) -> None:
        """Queue a job; `get` runs it."""
        if self._host is None:
            not_started()
        self._jobs.append(Job(player, 0, method, arguments))

    def get(self, timeout: float | None = None) -> Done:
        """Run the next job, without a timeout; errors of players are raised unchanged."""
        if self._host is None or not self._jobs:
            raise TimeoutError("no job was submitted")
        job = self._jobs.popleft()
        while True:
            job.restarts = self._restarts.get(job.player, 0)
            try:
                return Done(job.player, self._host.perform(job), self._version, job.restarts)
            except LostProcessError as error:
                self._restart(self._host, job.player, str(error))

    def _restart(self, host: Host, player: int, lost: str) -> None:
        """Restart a player that has lost its environments."""
        self._replaced += 1
        left = self._require_replaceable(lost)
        remaining = f"{left} more processes can be replaced"
        LOGGER.warning(f"{lost}; player {player} restarts, and {remaining}")
        host.discard(player)
        self._restarts[player] = self._restarts.get(player, 0) + 1

    def close(self) -> None:
        """Close the players."""
        self._jobs.clear()
        self._forget_losses()
        host = self._host
        self._host = None
        if host is not None:
            host.close()
