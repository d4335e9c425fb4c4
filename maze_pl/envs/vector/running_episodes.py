"""Acts of the running episodes of a vector of single environments, and summaries of those that ended."""

from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import mapped
from maze_pl.envs.vector.vector_env import Staging


class RunningEpisodes:
    """Record of the episodes of N environments.

    Args:
        staging: The staged actions.
        n_envs: Number of environments.
        first_env_index: Index of the first environment across all ranks and workers.

    Attributes:
        numbers: Index of each environment's running episode.
        acts: For each environment, step key -> head -> actions of its running episode.
        order: For each environment, the step keys of its acts as their positions among the step
            keys, unless there is only one step key.
        rewards: For each environment, the sum of the absolute rewards of its running episode, added
            in the order of the acts; NaN if it is unknown. Negative ones count double, so that signs
            matter, but rewards do not cancel, and rounding stays small in relation to the sum. If
            the state of a long episode was saved, only later rewards count.
        summaries: Summaries of ended episodes.
    """

    def __init__(self, staging: Staging, n_envs: int, first_env_index: int) -> None:
        self._staging = staging
        self._first_env_index = first_env_index
        self.numbers = [0] * n_envs
        self.acts: list[dict[StepKey, dict[str, list[Any]]]] = [{} for _ in range(n_envs)]
        self.order: list[list[int]] = [[] for _ in range(n_envs)]
        self.rewards = [0.0] * n_envs
        self.summaries: list[EpisodeSummary] = []

    def begin(self, n: int) -> None:
        """Forget the acts and rewards of environment n, which starts an episode."""
        self.order[n] = []
        self.acts[n] = mapped(lambda _: [], self._staging.action)
        self.rewards[n] = 0.0

    def shorten(self, n: int, first: dict[str, Any]) -> None:
        """Forget the rewards of environment n, whose state was saved, and all but its first acts.

        Args:
            n: Number of the environment.
            first: Its history with the first acts only.
        """
        self.order[n] = first["keys"].tolist() if self.order[n] else []
        self.acts[n] = mapped(list, first["actions"])
        self.rewards[n] = 0.0

    def finish(self, n: int, summary: EpisodeSummary) -> None:
        """Store the statistics of an episode that ended."""
        summary.env_index = self._first_env_index + n
        summary.episode_index = self.numbers[n]
        self.summaries.append(summary)

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Return and forget the summaries, sorted by environment and episode."""
        summaries, self.summaries = self.summaries, []
        return sorted(summaries, key=lambda summary: (summary.env_index, summary.episode_index))

    def histories(self) -> list[dict[str, Any]]:
        """Return the acts; see `ReplayedVectorEnv.histories`."""
        histories = []
        for episode, order, acts in zip(self.numbers, self.order, self.acts, strict=True):
            keys = order or [0] * max(len(values) for tree in acts.values() for values in tree.values())
            actions = mapped(lambda values, like: np.array(values, like.dtype), acts, self._staging.action)
            histories.append({"episode": episode, "keys": np.array(keys, np.int64), "actions": actions})
        return histories
