"""Picking what is shown of an episode: bounded, whatever its length, and the same for the same seed."""

import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper

Shown = tuple[StatKey, Any]
"""The name of the statistic that a value adds to, and the value."""


class SamplingWrapper(Wrapper):
    """Watches a random sample of the acts of each episode, which ends up in the episode's statistics.

    The choice depends on an episode's seed and length alone, so an episode that is played again to resume a run has the
    same sample as before.

    Args:
        env: The environment to wrap.
        size: How many acts of each sub-step are watched in an episode.
    """

    def __init__(self, env: StructuredEnv, size: int) -> None:
        super().__init__(env)
        self._size, self._random = size, random.Random(0)
        self._begin({})

    @abstractmethod
    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """What is to be shown of an act; it is copied."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and a sample of it."""
        if seed is not None:
            self._random.seed(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin(observation)
        return observation, info

    def _begin(self, observation: Observation) -> None:
        self._observation = observation
        self._sample: dict[tuple[Hashable, int], list[Shown]] = {}
        self._n_seen: Counter[Hashable] = Counter()

    def step(self, action: Action) -> StepResult:
        """Step, after watching the act if it is picked."""
        step_key = self.env.actor_id().step_key
        place = self.pick(step_key)
        if place is not None:
            shown = self.watch(step_key, self._observation, action)
            self._sample[place] = [(name, np.array(value)) for name, value in shown]
        result = self.env.step(action)
        self._observation = result[0]
        return result

    def pick(self, stream: Hashable) -> tuple[Hashable, int] | None:
        """Where in the sample this moment of a stream belongs; None if it is left out."""
        place = n_seen = self._n_seen[stream]
        self._n_seen[stream] += 1
        if n_seen >= self._size:  # reservoir sampling: in the end, each of n moments is kept with probability size / n
            place = int(self._random.random() * (n_seen + 1))
        return (stream, place) if place < self._size else None

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """What was kept, `[n, ...]` for each name."""
        kept: dict[StatKey, list[Any]] = {}
        for name, value in chain.from_iterable(self._sample.values()):
            kept.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in kept.items()}
