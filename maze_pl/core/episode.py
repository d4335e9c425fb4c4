"""What is kept of a finished episode: its statistics, small enough to travel between processes and ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

StatKey = tuple[str, str, str | None, tuple[str, ...]]
"""Topic name, event name, name of the statistic (None: the event's own) and the values that it is grouped by."""


@dataclass(slots=True)
class EpisodeSummary:
    """Statistics of one finished episode.

    Attributes:
        statistics: One number, or an array of observed values, for each statistic.
        env_steps: Environment time that the episode took.
        reward: Sum of the environment's own rewards, before any wrapper changed them.
        kpis: Key performance indicators of the episode by name.
        env_index: Index of the environment that played it, counted over all ranks.
        episode_index: How many episodes that environment had played before.
    """

    statistics: dict[StatKey, float | np.ndarray]
    env_steps: int
    reward: float
    kpis: dict[str, float] = field(default_factory=dict)
    env_index: int = 0
    episode_index: int = 0
