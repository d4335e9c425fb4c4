"""Normalisation of observations in arrays by statistics that follow the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep
from maze_pl.envs.arrays.observation_array_wrapper import ObservationArrayWrapper
from maze_pl.envs.running_moments import mean_of_rows, require_all, require_fitting, standard_deviation
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.running_observation_normalization_wrapper import (
        RunningObservationNormalizationWrapper,
    )


class RunningObservationNormalizationArrayWrapper(ObservationArrayWrapper):
    """Normalises observations by running statistics.

    All numbers equal those of a `RunningObservationNormalizationWrapper` around each environment.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper for single episodes, whose options are used.
    """

    def __init__(self, env: ArrayEnv, wrapper: RunningObservationNormalizationWrapper) -> None:
        super().__init__(env, wrapper.observation_spaces_dict)
        self._strategies = wrapper.strategies
        self._shapes = wrapper.moment_shapes
        self._owner = type(wrapper).__name__
        self._window = wrapper.window or 0
        self._first_statistics = wrapper.shared_state()
        self._is_frozen = False

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.has_statistics = np.zeros(1, bool)
        self.n: dict[str, Array] = {}  # [1] number of observations at the last merge
        self.mean: dict[str, Array] = {}  # [...] their mean
        self.m2: dict[str, Array] = {}  # [...] the sum of their squared differences from the mean
        self.least_std: dict[str, Array] = {}  # [...] what the standard deviation does not fall below
        self.n_new: dict[str, Array] = {}  # [N] number of observations since then
        self.sum: dict[str, Array] = {}  # [N, ...] the sum of their differences from the mean
        self.sum_squares: dict[str, Array] = {}  # [N, ...] the sum of the squares of these differences
        self.used_mean: dict[str, Array] = {}  # [N, ...] mean that the running episode is normalised by
        self.used_std: dict[str, Array] = {}  # [N, ...] standard deviation that it is normalised by
        for name, shape in self._shapes.items():
            self.n[name] = np.zeros(1, np.int64)
            self.n_new[name] = np.zeros(n_envs, np.int64)
            self.mean[name], self.m2[name] = np.zeros(shape), np.zeros(shape)
            self.least_std[name] = np.zeros(shape)
            self.sum[name], self.sum_squares[name] = np.zeros((n_envs, *shape)), np.zeros((n_envs, *shape))
            self.used_mean[name] = np.zeros((n_envs, *shape), np.float32)
            self.used_std[name] = np.ones((n_envs, *shape), np.float32)
        if self._first_statistics.keys() >= self._strategies.keys():
            self.load_shared_state(self._first_statistics)

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start episodes, which are normalised by the statistics at the last merge."""
        self._use_moments(as_numpy(which))
        return super().reset(which, seeds)

    def observations(
        self, key: StepKey, observation: Mapping[str, Array], which: Array, agents: Array
    ) -> Mapping[str, Array]:
        """Add observations to the statistics, and normalise them.

        Values that are not finite, which would spoil the statistics, become NaN, so that they are
        refused where they are used.
        """
        normalized = dict(observation)
        for name, strategy in self._strategies.items():
            if name in observation:
                values = observation[name]
                if not self._is_frozen:
                    difference, shape = values - self.mean[name], self._shapes[name]
                    self.n_new[name][which] += 1
                    self.sum[name][which] += mean_of_rows(difference, shape)
                    self.sum_squares[name][which] += mean_of_rows(difference * difference, shape)
                scaled = (values - self.used_mean[name][which]) / self.used_std[name][which]
                clipped = np.minimum(np.maximum(scaled, strategy.clip_low), strategy.clip_high)
                normalized[name] = np.where(np.isfinite(values), clipped, np.float32(np.nan))
        return normalized

    def _use_moments(self, which: Array) -> None:
        """Normalise the episodes of some environments by the statistics at the last merge from now on.

        Raises:
            RuntimeError: There are none.
        """
        if self._strategies and not self.has_statistics[0]:
            names = list(self._strategies)
            raise RuntimeError(f"{names} have no statistics: load those of a vector that estimates them, or give them")
        for name, strategy in self._strategies.items():
            mean = self.mean[name]
            std = standard_deviation(int(self.n[name][0]), mean, self.m2[name], self.least_std[name])
            strategy.set_normalization_stats({"mean": mean, "std": std})
            self.used_mean[name][which] = strategy.statistics["mean"]
            self.used_std[name][which] = strategy.statistics["std"]

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics at the last merge, and those of each environment since."""
        states: list[dict[str, Any]] = [{} for _ in range(self.n_envs)]
        if not self.has_statistics[0]:
            return states
        for name in self._strategies:
            common: dict[str, Any] = {"window": self._window, "n": int(self.n[name][0])}
            common |= {"mean": self.mean[name].copy(), "m2": self.m2[name].copy()}
            common["least_std"] = self.least_std[name].copy()
            counts, sums = self.n_new[name].tolist(), self.sum[name].copy()
            squares = self.sum_squares[name].copy()
            for state, n_new, own, own_squares in zip(states, counts, sums, squares, strict=True):
                state[name] = {**common, "n_new": n_new, "sum": own, "sum_squares": own_squares}
        return states

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics; running episodes go on with their own, unless they are frozen.

        Raises:
            ValueError: Some are missing, do not fit, or are those of observations that are not normalised.
        """
        require_all(self._shapes, state, self._owner)
        require_fitting(self._shapes, state, self._owner)
        self.has_statistics[0] = True
        for name, moments in state.items():
            self.n[name][:] = moments["n"]
            self.mean[name][...] = moments["mean"]
            self.m2[name][...] = moments["m2"]
            self.least_std[name][...] = moments["least_std"]
            self.n_new[name][:] = moments["n_new"]
            self.sum[name][:] = moments["sum"]
            self.sum_squares[name][:] = moments["sum_squares"]
        if self._is_frozen:
            self._use_moments(np.arange(self.n_envs))

    def freeze(self) -> None:
        """Normalise by the current statistics from now on, without updating them."""
        self._is_frozen = True
        if self.has_statistics[0]:
            self._use_moments(np.arange(self.n_envs))
