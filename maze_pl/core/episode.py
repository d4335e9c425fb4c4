"""Summaries of finished episodes, small enough to send between processes and ranks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np

from maze_pl.core.histogram import Histogram
from maze_pl.core.seeding import derive_seed

StatKey = tuple[str, str, str | None, tuple[str, ...]]
"""Topic name, event name, statistic name (None: of the event itself) and values of its grouping."""

MAX_SAMPLED_EPISODES: Final = 100


@dataclass(slots=True)
class EpisodeSummary:
    """Statistics of one finished episode.

    Attributes:
        statistics: One number, an array of observed values, or the histogram of the values of a
            long episode, for each statistic.
        env_steps: Length of the episode in environment steps.
        reward: Sum of the environment's rewards, before any wrapper changed them.
        kpis: Key performance indicators of the episode by name.
        env_index: Index of the environment that played it, counted over all ranks.
        episode_index: Number of episodes that this environment had played before.
        samples: Values sampled at random by monitoring wrappers, as an array per statistic; see
            `thin_out`.
    """

    statistics: dict[StatKey, float | np.ndarray | Histogram]
    env_steps: int
    reward: float
    kpis: dict[str, float] = field(default_factory=dict)
    env_index: int = 0
    episode_index: int = 0
    samples: dict[StatKey, np.ndarray] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Convert the summary to dicts, numbers, strings and arrays."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Make the summary that `to_dict` converted."""
        summary = cls(**content)
        for key, value in summary.statistics.items():
            if isinstance(value, dict):
                summary.statistics[key] = Histogram(**value)
        return summary


def thin_out(summaries: Sequence[EpisodeSummary]) -> None:
    """Keep the samples of at most 100 episodes, which bounds memory however long an epoch is.

    The choice depends only on the indices of environments and episodes, so thinning out more often
    changes nothing.
    """
    sampled = [summary for summary in summaries if summary.samples]
    if len(sampled) > MAX_SAMPLED_EPISODES:
        sampled.sort(key=lambda one: sampling_order(one.env_index, one.episode_index))
        for summary in sampled[MAX_SAMPLED_EPISODES:]:
            summary.samples = {}


def sampling_order(env_index: int, episode_index: int) -> int:
    """Return the number by which episodes are sorted: the first ones keep their samples."""
    return derive_seed("sample", env_index, episode_index)
