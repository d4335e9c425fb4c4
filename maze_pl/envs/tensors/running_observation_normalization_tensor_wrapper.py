"""Normalisation of observations in tensors by statistics that follow the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.running_moments import require_all, require_fitting
from maze_pl.envs.tensors.observation_normalization_tensor_wrapper import (
    clips_of,
    normalized,
    why_not_normalized,
)
from maze_pl.envs.tensors.tensor_env import TensorEnv, Tensors
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper, of_each_env

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.running_observation_normalization_wrapper import (
        RunningObservationNormalizationWrapper,
    )

_STATE = ("n", "mean", "m2", "least_std", "n_new", "sum", "sum_squares")


class RunningObservationNormalizationTensorWrapper(TensorWrapper):
    """Normalises observations by their running mean and standard deviation.

    Formulas, and when statistics change, are those of `RunningObservationNormalizationWrapper`; see
    `RunningMoments`. The observations that count are those that are acted upon: without the final
    ones of episodes.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper for single episodes, with the strategies of the observations.
    """

    def __init__(self, env: TensorEnv, wrapper: RunningObservationNormalizationWrapper) -> None:
        super().__init__(env)
        self._changed_spaces = wrapper.observation_spaces_dict
        self._window = wrapper.window or 0
        self._shapes, self._owner = wrapper.moment_shapes, type(wrapper).__name__
        self._clips = clips_of(wrapper.strategies)
        self._first = wrapper.shared_state()
        self._obstacle = why_not_normalized(self._shapes, self._first)

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Space of the normalised observations of each sub-step."""
        return self._changed_spaces

    def make_tensors(self, n_envs: int) -> None:
        """Make the moments of observations, and those that running episodes are normalised by."""
        shapes = self._shapes
        per_env = {name: (n_envs, *shape) for name, shape in shapes.items()}
        one = dict.fromkeys(shapes, ())
        self.n, self.n_new = self._zeros(one, torch.int64), self._zeros(one, torch.int64)
        self.mean, self.m2 = self._zeros(shapes, torch.float64), self._zeros(shapes, torch.float64)
        self.least_std = self._zeros(shapes, torch.float64)
        self.sum = self._zeros(shapes, torch.float64)
        self.sum_squares = self._zeros(shapes, torch.float64)
        self.latest_mean, self.latest_std = self._zeros(shapes), self._zeros(shapes)
        self.used_mean, self.used_std = self._zeros(per_env), self._zeros(per_env)
        for std in (*self.latest_std.values(), *self.used_std.values()):
            std.fill_(1.0)
        self._load(self._first)

    def _zeros(self, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Make a tensor for each observation."""
        made = {}
        for name, shape in shapes.items():
            made[name] = torch.zeros(shape, dtype=dtype, device=self.device)
        return made

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start episodes, which are normalised by the statistics at the last merge.

        Raises:
            RuntimeError: There are none.
        """
        if self._obstacle is not None:
            raise RuntimeError(self._obstacle)
        for latest, used in ((self.latest_mean, self.used_mean), (self.latest_std, self.used_std)):
            for name, values in used.items():
                values.copy_(torch.where(of_each_env(which, values), latest[name], values))
        super().begin(which, seeds)

    def observation(self, step_key: StepKey, observation: Tensors) -> Tensors:
        """Normalise observations by the statistics of their episodes.

        Values that are not finite, which would spoil the statistics, become NaN, so that they are
        refused where they are used.
        """
        changed = dict(observation)
        for name in self._clips.keys() & observation.keys():
            mean, std = self.used_mean[name], self.used_std[name]
            values = normalized(observation[name], mean, std, self._clips[name])
            changed[name] = torch.where(observation[name].isfinite(), values, torch.nan)
        return changed

    def learn(self, step_key: StepKey, observation: Tensors) -> None:
        """Add observations to the sums since the last merge."""
        for name in self._clips.keys() & observation.keys():
            difference = observation[name].double() - self.mean[name]
            self.n_new[name].add_(self.n_envs)
            self.sum[name].add_(self._mean_of_rows(name, difference).sum(0))
            self.sum_squares[name].add_(self._mean_of_rows(name, difference * difference).sum(0))

    def _mean_of_rows(self, name: str, values: Tensor) -> Tensor:
        """Return the mean over rows [N, 1, ...] that share their moments; other values as they are."""
        shape = self._shapes[name]
        if not shape or values.shape[1] == shape[0]:
            return values
        return values.mean(1, keepdim=True)

    def shared_state(self) -> dict[str, Any]:
        """Return the moments of each observation, and the sums since the last merge."""
        state: dict[str, Any] = {}
        for name in self._clips:
            parts = {part: getattr(self, part)[name].clone() for part in _STATE}
            state[name] = {"window": self._window, **parts}
        return state

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics; running episodes go on with their own.

        Raises:
            ValueError: Some are missing, do not fit, or are those of observations that are not normalised.
        """
        require_all(self._shapes, state, self._owner)
        require_fitting(self._shapes, state, self._owner)
        self._load(state)
        self._obstacle = None

    def _load(self, state: Mapping[str, Any]) -> None:
        """Take over the statistics of some observations."""
        for name in state:
            for part in _STATE:
                getattr(self, part)[name].copy_(torch.as_tensor(state[name][part]))
            self._update_latest(name)

    def merge(self) -> None:
        """Merge the sums into the moments; see `RunningMoments`."""
        for name in self._clips:
            m2, sums = self.m2[name], self.sum[name]
            total = self.n[name] + self.n_new[name]
            m2.add_(self.sum_squares[name] - sums * sums / total)
            m2.clamp_(min=0.0)  # rounding may make it negative
            self.mean[name].add_(sums / total)
            if self._window:
                m2.mul_((self._window / total.double()).clamp(max=1.0))
                total = total.clamp(max=self._window)
            self.n[name].copy_(total)
            for gathered in (self.n_new, self.sum, self.sum_squares):
                gathered[name].zero_()
            self._update_latest(name)

    def _update_latest(self, name: str) -> None:
        """Compute mean and standard deviation of merged statistics; see `standard_deviation`."""
        mean, single = self.mean[name], torch.finfo(torch.float32)
        least = torch.maximum(self.least_std[name], (single.eps * mean.abs()).clamp(min=single.tiny))
        self.latest_mean[name].copy_(mean)
        self.latest_std[name].copy_(torch.maximum((self.m2[name] / self.n[name]).sqrt(), least))
