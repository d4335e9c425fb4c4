"""Summaries of the episodes of a deployment, from which its statistics follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.runs.simple_stats import log_episodes

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

    from maze_pl.core.episode import EpisodeSummary

_MOST_EPISODES: Final = 10_000


class EpisodeSummaries:
    """Summaries of the last 10,000 episodes.

    Args:
        env: The environment with its wrappers, which summarises the episodes.
    """

    def __init__(self, env: LogStatsWrapper) -> None:
        self._env = env
        self._summaries: deque[EpisodeSummary] = deque(maxlen=_MOST_EPISODES)

    def __iter__(self) -> Iterator[EpisodeSummary]:
        return iter(self._summaries)

    def add_finished(self) -> None:
        """Add the episodes that have ended since the last call."""
        self._summaries.extend(self._env.drain_episode_summaries())

    def statistics(self, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
        """Return the statistics, and pass them to loggers; see `AgentDeployment.statistics`."""
        prefix = self._env.logging_prefix or "deployment"
        return log_episodes(self._summaries, self._env.pubsub.topics, prefix, loggers)
