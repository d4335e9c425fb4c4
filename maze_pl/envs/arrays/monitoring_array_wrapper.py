"""Distributions of observations, actions and rewards of many episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import ArrayChecks, as_numpy, slots_for_checks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.monitored_values import (
    N_ACTS,
    N_NUMBERS,
    OBSERVATION_EVENTS,
    REWARD_EVENTS,
    LoggedChoice,
    logged_choices,
    observation_key,
    reward_key,
    sampling_seeds,
)
from maze_pl.envs.structured_env import Array

_REWARDS = None
"""Stream of the rewards of environment steps; the others are sub-steps, whose keys may have any name."""


class MonitoringArrayWrapper(ArrayWrapper):
    """Logs distributions of observations, actions and rewards; see `MazeEnvMonitoringWrapper`.

    Args:
        env: The environment to wrap.
        observation_logging: Whether to log observations, before and after processing.
        action_logging: Whether to log actions.
        reward_logging: Whether to log rewards, before and after processing.
    """

    def __init__(self, env: ArrayEnv, observation_logging: bool, action_logging: bool, reward_logging: bool) -> None:
        super().__init__(env)
        self.observation_logging = observation_logging
        self.action_logging = action_logging
        self.reward_logging = reward_logging

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._places = np.zeros(n_envs, np.int64)  # position of the next actor's step key
        self._env_time = np.zeros(n_envs, np.int64)
        self._step_rewards = np.zeros((n_envs, 2))  # of the running environment step, before and after processing
        self._total_rewards = np.zeros((n_envs, 2))
        self._random = RandomStreams(np.zeros(n_envs, np.int64))
        self._keys = list(self.env.observation_spaces_dict)
        self._n_seen: dict[StepKey | None, Array] = {}
        for stream in (*self._keys, _REWARDS):
            self._n_seen[stream] = np.zeros(n_envs, np.int64)
        self._samples: dict[StatKey, Array] = {}  # [N, 50, ...]
        self._streams: dict[StatKey, StepKey | None] = {}  # stream of each sample
        self._seen: dict[str, dict[StepKey, dict[str, Array]]] = {}  # observations of the next actors
        self._checks: dict[str, ArrayChecks] = {}
        for event, source in zip(OBSERVATION_EVENTS, (self.unwrapped, self.env), strict=True):
            if self.observation_logging:
                self._reserve_observations(event, source)
        self._choices: dict[StepKey, list[LoggedChoice]] = {key: [] for key in self._keys}
        for key, space in self.env.action_spaces_dict.items():
            if self.action_logging:
                self._choices[key] = list(logged_choices(key, space))
            for choice in self._choices[key]:
                part = space[choice.head]
                shape = () if choice.position is not None else part.shape or ()
                self._reserve(choice.key, key, shape, part.dtype)
        if self.reward_logging:
            for event in REWARD_EVENTS:
                self._reserve(reward_key(event, "steps"), _REWARDS, (), np.dtype(np.float64))

    def _reserve_observations(self, event: str, source: ArrayEnv) -> None:
        """Make the arrays of observations, before or after processing."""
        spec = Spec.of(source, slots_for_checks(source))
        env = self.unwrapped
        self._checks[event] = ArrayChecks(spec, self.n_envs, env.first_env_index, type(env).__name__, False)
        self._seen[event] = {}
        for key, space in source.observation_spaces_dict.items():
            arrays = self._seen[event][key] = {}
            for name, part in space.spaces.items():
                arrays[name] = np.zeros((self.n_envs, *(part.shape or ())), part.dtype)
                size = min(int(np.prod(part.shape or ())), N_NUMBERS)
                self._reserve(observation_key(event, key, name), key, (size,), part.dtype)

    def _reserve(self, key: StatKey, stream: StepKey | None, shape: tuple[int, ...], dtype: Any) -> None:
        """Make the array of a sample."""
        self._samples[key] = np.zeros((self.n_envs, N_ACTS, *shape), dtype)
        self._streams[key] = stream

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start episodes with new samples."""
        rows = as_numpy(which)
        self._random.seed(sampling_seeds(as_numpy(seeds)), rows)
        for n_seen in self._n_seen.values():
            n_seen[rows] = 0
        self._step_rewards[rows] = 0.0
        self._total_rewards[rows] = 0.0
        result = super().reset(which, seeds)
        if isinstance(result, ArrayStep):  # otherwise the caller reports it
            self._env_time[rows] = 0 if result.env_time is None else as_numpy(result.env_time)[rows]
            self._note_next(result, rows)
        return result

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Log the acts that are picked, step, and log the rewards."""
        numbers = as_numpy(self.numbers_of(which))
        if self.observation_logging or self.action_logging:
            for place, key in enumerate(self._keys):
                acting = numbers[self._places[numbers] == place]
                if len(acting):
                    self._note_acts(key, *self._picked(key, acting), actions[key])
        result = super().step(actions, which)
        if isinstance(result, ArrayStep) and result.reward is not None:  # otherwise the caller reports it
            if self.reward_logging:
                self._note_rewards(result, numbers)
            self._note_next(result, numbers)
        return result

    def _picked(self, stream: StepKey | None, rows: Array) -> tuple[Array, Array]:
        """Pick the present moment of some environments for their samples.

        Reservoir sampling: in the end, each of n moments is kept with probability size / n.

        Returns:
            Environments that were picked, and the places in their samples.
        """
        n_seen = self._n_seen[stream]
        places = n_seen[rows]
        n_seen[rows] += 1
        is_full = places >= N_ACTS
        if is_full.any():
            drawn = self._random.random(which=rows[is_full])
            places[is_full] = (drawn * (places[is_full] + 1)).astype(np.int64)
        is_picked = places < N_ACTS
        return rows[is_picked], places[is_picked]

    def _note_acts(self, key: StepKey, rows: Array, places: Array, actions: Mapping[str, AnyArray]) -> None:
        """Add acts to the samples.

        Args:
            key: Step key of the actors.
            rows: [n] environments that are picked.
            places: [n] places in their samples.
            actions: Head -> [N, ...].
        """
        if not len(rows):
            return
        for choice in self._choices[key]:
            self._samples[choice.key][rows, places] = choice.of(as_numpy(actions[choice.head])[rows])
        for event, seen in self._seen.items():
            for name in sorted(seen[key]):
                values = seen[key][name][rows].reshape(len(rows), -1)
                if values.shape[1] > N_NUMBERS:
                    chosen = self._random.integers(values.shape[1], size=N_NUMBERS, which=rows)
                    values = np.take_along_axis(values, chosen, axis=1)
                self._samples[observation_key(event, key, name)][rows, places] = values

    def _note_rewards(self, result: ArrayStep, rows: Array) -> None:
        """Add the rewards of environment steps that are complete to the samples."""
        before = result.reward if result.env_reward is None else result.env_reward
        self._step_rewards[rows, 0] += as_numpy(before)[rows]
        self._step_rewards[rows, 1] += as_numpy(result.reward)[rows]
        completes = np.ones(len(rows), np.bool_)
        if result.env_time is not None:
            env_time = as_numpy(result.env_time)[rows]
            completes = env_time != self._env_time[rows]
            self._env_time[rows] = env_time
            for flags in (result.terminated, result.truncated):
                if flags is not None:
                    completes |= as_numpy(flags)[rows]
        done = rows[completes]
        picked, places = self._picked(_REWARDS, done)
        for column, event in enumerate(REWARD_EVENTS):
            self._samples[reward_key(event, "steps")][picked, places] = self._step_rewards[picked, column]
        self._total_rewards[done] += self._step_rewards[done]
        self._step_rewards[done] = 0.0

    def _note_next(self, result: ArrayStep, rows: Array) -> None:
        """Keep the observations of the next actors."""
        if result.next_key is not None:
            self._places[rows] = as_numpy(result.next_key)[rows]
        trees = (result.env_observation or result.observation, result.observation)
        for (event, seen), tree in zip(self._seen.items(), trees, strict=False):
            for place, key in enumerate(self._keys):
                observing = rows[self._places[rows] == place]
                if len(observing):
                    arrays = self._checks[event].observation_of(ArrayStep(tree), key, observing)
                    for name, kept in seen[key].items():
                        kept[observing] = arrays[name][observing]

    def end_episodes(self, which: AnyArray) -> Mapping[StatKey, StatColumn]:
        """Return the samples, and the sums of the rewards."""
        rows = as_numpy(which)
        columns = dict(self.env.end_episodes(which))
        for key, sample in self._samples.items():
            counts = np.minimum(self._n_seen[self._streams[key]][rows], N_ACTS)
            is_kept = np.arange(N_ACTS) < counts[:, np.newaxis]
            having = np.flatnonzero(counts)
            if len(having):
                columns[key] = StatColumn(having, sample[rows][is_kept], counts[having])
        if self.reward_logging:
            for column, event in enumerate(REWARD_EVENTS):
                totals = self._total_rewards[rows, column]
                columns[reward_key(event, None)] = StatColumn(np.arange(len(rows)), totals)
        return columns

    def _arrays(self) -> Iterator[tuple[str, AnyArray]]:
        """Yield the samples, too."""
        yield from super()._arrays()
        for stream, n_seen in self._n_seen.items():
            yield f"n_seen {stream}", n_seen
        for key, sample in self._samples.items():
            yield f"sample {'/'.join(map(str, key))}", sample
        for event, seen in self._seen.items():
            for step_key, arrays in seen.items():
                for name, array in arrays.items():
                    yield f"{event} {step_key} {name}", array
