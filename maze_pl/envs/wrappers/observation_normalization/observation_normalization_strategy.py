"""How a single observation is normalised: the interface of strategies, and what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array

Statistics = dict[str, Array]


class ObservationNormalizationStrategy(ABC):
    """Normalises one observation by statistics that are given, or estimated from samples.

    Args:
        observation_space: Space of the observation.
        clip_range: Range that normalised values are clipped to, None for an end without limit.
        axis: Axes of the stacked samples [N, ...] along which statistics are computed; 0, the samples, is always one
            of them. `0` gives each element of the observation its own statistics, None all of them the same.

    Attributes:
        statistics: The statistics in float32, ready for use in `normalize_value`.
    """

    statistics_names: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that the strategy needs; checked when they are set."""

    def __init__(
        self,
        observation_space: spaces.Box,
        clip_range: Sequence[float | None] = (None, None),
        axis: int | Sequence[int] | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.clip_low, self.clip_high = clip_range
        if self.clip_low is not None and self.clip_high is not None and self.clip_low > self.clip_high:
            raise ValueError(f"clip_range={list(clip_range)} must be given as [lowest, highest]")
        self.axis = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        if self.axis is not None and 0 not in self.axis:
            raise ValueError(f"axis={axis} must include 0, the axis of the samples")
        self.statistics: Statistics = {}
        self._exact: Statistics = {}

    @abstractmethod
    def estimate_stats(self, observations: Array) -> Statistics:
        """Compute statistics, usually by `reduce`.

        Args:
            observations: [N, ...] samples in float64.
        """

    @abstractmethod
    def normalize_value(self, value: Array) -> Array:
        """Normalise an observation by `statistics`; clipping and the conversion to float32 follow."""

    def reduce(self, function: Callable[..., Array], observations: Array) -> Array:
        """Apply a function of NumPy, such as `np.mean`, along `axis`.

        Returns:
            An array that is broadcast against a single observation.
        """
        if self.axis is None:
            return np.asarray(function(observations))
        return np.asarray(function(observations, axis=self.axis, keepdims=True)[0])

    @property
    def is_initialized(self) -> bool:
        """Whether the statistics are known."""
        return bool(self._exact)

    def get_normalization_stats(self) -> Statistics:
        """The statistics, as they were set."""
        return dict(self._exact)

    def set_normalization_stats(self, statistics: Mapping[str, Any]) -> None:
        """Use these statistics: numbers, or arrays that are broadcast against an observation.

        Raises:
            ValueError: Some are missing, unknown, of the wrong shape or not finite.
        """
        if self.statistics_names and set(statistics) != set(self.statistics_names):
            raise ValueError(
                f"{type(self).__name__} needs the statistics {list(self.statistics_names)}, not {list(statistics)}"
            )
        exact = {name: np.array(value, dtype=np.float64) for name, value in statistics.items()}
        shape = self.observation_space.shape
        for name, value in exact.items():
            if value.ndim > len(shape) or np.broadcast_shapes(value.shape, shape) != shape:
                raise ValueError(f"statistic {name!r} has shape {value.shape}, which does not fit observations {shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"statistic {name!r} is not finite: {value}")
        self.check_stats(exact)
        self._exact = exact
        self.statistics = {name: value.astype(np.float32) for name, value in exact.items()}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse statistics by which nothing can be normalised, with a ValueError; by default those without a value."""
        if not all(value.size for value in statistics.values()) or not statistics:
            raise ValueError(f"{type(self).__name__} cannot normalise by {statistics}")

    def normalize(self, value: Array) -> Array:
        """The normalised observation, clipped, in float32."""
        value = self.normalize_value(value)
        if self.clip_low is not None or self.clip_high is not None:
            value = np.clip(value, self.clip_low, self.clip_high)
        return np.asarray(value, dtype=np.float32)

    def normalized_space(self) -> spaces.Box:
        """Space of normalised observations; it does not depend on the statistics."""
        low = -np.inf if self.clip_low is None else self.clip_low
        high = np.inf if self.clip_high is None else self.clip_high
        return spaces.Box(low, high, self.observation_space.shape, np.float32)
