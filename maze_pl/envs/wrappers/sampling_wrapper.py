"""Base class of wrappers that pick values at random for the statistics of an episode."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.envs.monitored_values import sampling_seeds
from maze_pl.envs.structured_env import (
    Action,
    Array,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
)
from maze_pl.envs.wrapper import Wrapper

Shown = tuple[StatKey, Any]
"""Key of the statistic that a value adds to, and the value."""


class SamplingWrapper(Wrapper):
    """Adds a random sample of the acts of each episode to the episode's statistics.

    The sample depends only on the episode's seed and length, so an episode that is replayed to
    resume a run has the same sample as before.

    Args:
        env: The environment to wrap.
        size: Number of acts of each sub-step that are sampled in an episode.
    """

    def __init__(self, env: StructuredEnv, size: int) -> None:
        super().__init__(env)
        self._size, self._random = size, np.random.default_rng(0)
        self._begin({})

    @abstractmethod
    def watch(self, step_key: StepKey, observation: Observation, action: Action) -> Iterator[Shown]:
        """Yield the values to show of an act; they are copied."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode and its sample."""
        if seed is not None:
            self._random = np.random.default_rng(sampling_seeds(seed))
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin(observation)
        return observation, info

    def _begin(self, observation: Observation) -> None:
        self._observation = observation
        self._sample: dict[tuple[Hashable, int], list[Shown]] = {}
        self._n_seen: Counter[Hashable] = Counter()

    def step(self, action: Action) -> StepResult:
        """Record the act if it is sampled, and step."""
        self._watch_if_picked(action)
        result = self.env.step(action)
        self._observation = result[0]
        return result

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        self._watch_if_picked(action)
        result: StepResult = yield action
        self._observation = result[0]
        return result

    def _watch_if_picked(self, action: Action) -> None:
        step_key = self.env.actor_id().step_key
        place = self.pick(step_key)
        if place is not None:
            shown = self.watch(step_key, self._observation, action)
            self._sample[place] = [(name, np.array(value)) for name, value in shown]

    def pick(self, stream: Hashable) -> tuple[Hashable, int] | None:
        """Place of the current moment of a stream in the sample; None if it is left out."""
        place = n_seen = self._n_seen[stream]
        self._n_seen[stream] += 1
        if n_seen >= self._size:  # reservoir sampling: in the end, each of n moments is kept with probability size / n
            place = int(self._random.random() * (n_seen + 1))
        return (stream, place) if place < self._size else None

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Sampled values, `[n, ...]` for each key."""
        kept: dict[StatKey, list[Any]] = {}
        for name, value in chain.from_iterable(self._sample.values()):
            kept.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in kept.items()}
