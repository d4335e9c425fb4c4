"""Normalisation of observations in tensors by statistics that stay the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.running_moments import require_all, require_normalized
from maze_pl.envs.structured_env import Array
from maze_pl.envs.tensors.tensor_env import TensorEnv, Tensors
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper
from maze_pl.envs.wrappers.mean_zero_std_one_strategy import MeanZeroStdOneObservationNormalizationStrategy
from maze_pl.envs.wrappers.observation_normalization_strategy import ObservationNormalizationStrategy
from maze_pl.envs.wrappers.range_zero_one_strategy import RangeZeroOneObservationNormalizationStrategy

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.observation_normalization_wrapper import ObservationNormalizationWrapper


class ObservationNormalizationTensorWrapper(TensorWrapper):
    """Normalises observations by the statistics of the wrapper for single episodes.

        normalised = clip((value - shift) / width)

    Args:
        env: The environment to wrap.
        wrapper: The wrapper, with the strategies of the observations.

    Raises:
        TypeError: A strategy has operations of NumPy that are not known here.
    """

    def __init__(self, env: TensorEnv, wrapper: ObservationNormalizationWrapper) -> None:
        super().__init__(env)
        self._owner = type(wrapper).__name__
        self._changed_spaces = wrapper.observation_spaces_dict
        self._given = sorted(wrapper.configured_statistics)
        self._kinds = {name: type(strategy) for name, strategy in wrapper.strategies.items()}
        self._clips = clips_of(wrapper.strategies)
        self._first = wrapper.get_normalization_statistics()
        self._obstacle = why_not_normalized(self._kinds, self._first)
        for name, kind in self._kinds.items():
            if kind not in _SHIFTS_AND_WIDTHS:
                known = [one.__name__ for one in _SHIFTS_AND_WIDTHS]
                fault = f"the strategy {kind.__name__} of {name!r} has no form in tensors"
                raise TypeError(f"{fault}, as {known} have")

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Space of the normalised observations of each sub-step."""
        return self._changed_spaces

    def make_tensors(self, n_envs: int) -> None:
        """Make the statistics, broadcast to a single observation."""
        shapes = shapes_of(self.env, self._kinds)
        self.shift = {name: torch.zeros(shape, device=self.device) for name, shape in shapes.items()}
        self.width = {name: torch.ones(shape, device=self.device) for name, shape in shapes.items()}
        for name, statistics in self._first.items():
            self._use(name, statistics)

    def _use(self, name: str, statistics: Mapping[str, Any]) -> None:
        """Normalise an observation by some statistics from now on."""
        single = {part: _single(value) for part, value in statistics.items()}
        shift, width = _SHIFTS_AND_WIDTHS[self._kinds[name]](single)
        self.shift[name].copy_(torch.from_numpy(shift))
        self.width[name].copy_(torch.from_numpy(width))

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start episodes.

        Raises:
            RuntimeError: Statistics are missing.
        """
        if self._obstacle is not None:
            raise RuntimeError(self._obstacle)
        super().begin(which, seeds)

    def observation(self, step_key: StepKey, observation: Tensors) -> Tensors:
        """Normalise all observations that have a strategy."""
        changed = dict(observation)
        for name in self._kinds.keys() & observation.keys():
            values, clip = observation[name], self._clips[name]
            changed[name] = normalized(values, self.shift[name], self.width[name], clip)
        return changed

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Use statistics that were estimated, except where the configuration states some.

        Raises:
            ValueError: Some are missing, or are those of observations that are not normalised.
        """
        needed = [name for name in self._kinds if name not in self._given]
        require_all(needed, state, self._owner)
        require_normalized(self._kinds, state, self._owner)
        for name in needed:
            self._use(name, state[name])
        self._obstacle = None


def why_not_normalized(names: Iterable[str], known: Collection[str]) -> str | None:
    """Return the reason why observations cannot be normalised yet; None if there is none.

    Args:
        names: The observations.
        known: Those that have statistics.
    """
    if missing := [name for name in names if name not in known]:
        remedy = "load those of a vector that estimates them, or give them"
        return f"{missing} have no statistics: {remedy}"
    return None


def clips_of(strategies: Mapping[str, ObservationNormalizationStrategy]) -> dict[str, tuple[float, float]]:
    """Return the ends of the range that each observation is clipped to."""
    return {name: (float(one.clip_low), float(one.clip_high)) for name, one in strategies.items()}


def shapes_of(env: TensorEnv, names: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of some observations of an environment, the same in all sub-steps."""
    steps = env.observation_spaces_dict.values()
    parts = [part for space in steps for part in space.spaces.items()]
    return {name: tuple(part.shape or ()) for name, part in parts if name in names}


def normalized(values: Tensor, shift: Tensor, width: Tensor, clip: tuple[float, float]) -> Tensor:
    """Return shifted and scaled values in float32, within a range.

    Args:
        values: [N, ...] in the type of their space.
        shift: [...] or [N, ...] float32, subtracted from them.
        width: [...] or [N, ...] float32, by which the difference is divided.
        clip: Ends of the range.
    """
    if not values.is_floating_point():
        values = values.double()
    return ((values - shift) / width).clip(*clip).float()


def _of_mean(statistics: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return mean and standard deviation."""
    return statistics["mean"], statistics["std"]


def _of_range(statistics: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the minimum, and the width of the range; 1 for elements that stay the same."""
    width = statistics["max"] - statistics["min"]
    return statistics["min"], np.where(width > 0, width, np.float32(1))


def _single(value: Any) -> Array:
    """Return a statistic in float32."""
    return np.array(value, np.float64).astype(np.float32)


_SHIFTS_AND_WIDTHS = {
    MeanZeroStdOneObservationNormalizationStrategy: _of_mean,
    RangeZeroOneObservationNormalizationStrategy: _of_range,
}
