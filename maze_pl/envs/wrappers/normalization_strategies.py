"""How a single observation is normalised: the interface of strategies, and those there are."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array

Range = Sequence[float | None]
Statistics = dict[str, Array]
RELATIVE_TOLERANCE = 1e-7
"""Spread, relative to the largest value, up to which values count as constant: float32 has no more digits."""


class ObservationNormalizationStrategy(ABC):
    """Normalises one observation by statistics that are given, or estimated from samples.

    Args:
        observation_space: Space of the observation.
        clip_range: Range that normalised values are clipped to, None for an end without limit.
        axis: Axes of the stacked samples [N, ...] along which statistics are computed; 0, the samples, is always one
            of them. `0` gives each element of the observation its own statistics, None all of them the same.

    Attributes:
        statistics: The statistics in float32, ready for use in `normalize_value`; empty as long as none are known.
    """

    statistics_names: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that the strategy needs; checked when they are set."""

    def __init__(
        self, observation_space: spaces.Box, clip_range: Range = (None, None), axis: int | Sequence[int] | None = None
    ) -> None:
        self.observation_space = observation_space
        ends = [end for end in clip_range if end is not None]
        if len(clip_range) != 2 or sorted(ends) != ends or any(np.isnan(ends)):
            raise ValueError(f"clip_range={list(clip_range)} must be given as [lowest, highest]")
        self.clip_low, self.clip_high = (end if end is None else np.float32(end) for end in clip_range)
        self.axis = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        axes = range(len(observation_space.shape) + 1)
        if self.axis is not None and not {0} <= set(self.axis) <= set(axes):
            raise ValueError(f"axis={axis} must be of {list(axes)}, and include 0, the axis of the samples")
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

    def get_normalization_stats(self) -> Statistics:
        """The statistics, as they were set."""
        return dict(self._exact)

    def set_normalization_stats(self, statistics: Mapping[str, Any]) -> None:
        """Use these statistics: numbers, or arrays that are broadcast against an observation.

        Raises:
            ValueError: Some are missing, unknown, of the wrong shape or not finite.
        """
        if self.statistics_names and set(statistics) != set(self.statistics_names):
            needed = list(self.statistics_names)
            raise ValueError(f"{type(self).__name__} needs the statistics {needed}, not {list(statistics)}")
        exact = {name: np.array(value, dtype=np.float64) for name, value in statistics.items()}
        with np.errstate(over="ignore", under="ignore"):
            single = {name: value.astype(np.float32) for name, value in exact.items()}
        shape = self.observation_space.shape
        for name, value in exact.items():
            sizes = zip(value.shape[::-1], shape[::-1], strict=False)  # as NumPy broadcasts
            if value.ndim > len(shape) or any(size not in (1, own) for size, own in sizes):
                raise ValueError(f"statistic {name!r} has shape {value.shape}, which does not fit observations {shape}")
            if not np.isfinite(single[name]).all():
                raise ValueError(f"statistic {name!r} is not finite: {value}")
        self.check_stats(single)
        self._exact, self.statistics = exact, single

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse statistics by which nothing can be normalised, with a ValueError; by default those without a value."""
        if not all(value.size for value in statistics.values()) or not statistics:
            raise ValueError(f"{type(self).__name__} cannot normalise by {statistics}")

    def normalize(self, value: Array) -> Array:
        """The normalised observation, clipped, in float32."""
        value = self.normalize_value(value)
        if self.clip_low is not None:
            value = np.maximum(value, self.clip_low)  # np.clip takes three times as long
        if self.clip_high is not None:
            value = np.minimum(value, self.clip_high)
        return np.asarray(value, dtype=np.float32)

    def normalized_space(self) -> spaces.Box:
        """Space of normalised observations; it does not depend on the statistics."""
        low = -np.inf if self.clip_low is None else self.clip_low
        high = np.inf if self.clip_high is None else self.clip_high
        return spaces.Box(low, high, self.observation_space.shape, np.float32)


class MeanZeroStdOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Subtracts the mean and divides by the standard deviation: statistics `mean` and `std`.

    What is constant in the samples is only shifted: its standard deviation is taken as 1.
    """

    statistics_names = ("mean", "std")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Mean and standard deviation along `axis`."""
        std = self.reduce(np.std, observations)
        least = RELATIVE_TOLERANCE * self.reduce(np.max, np.abs(observations))
        constant = std <= np.maximum(least, np.finfo(np.float32).tiny)
        return {"mean": self.reduce(np.mean, observations), "std": np.where(constant, 1.0, std)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse standard deviations that are not positive."""
        if np.any(statistics["std"] <= 0):
            raise ValueError(f"the standard deviation must be positive, not {statistics['std']}")

    def normalize_value(self, value: Array) -> Array:
        """(value - mean) / std."""
        return np.asarray((value - self.statistics["mean"]) / self.statistics["std"])


class RangeZeroOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Maps the range of values to [0, 1]: statistics `min` and `max`.

    Values beyond the range are mapped beyond [0, 1], unless they are clipped; what is constant is mapped to 0.
    """

    statistics_names = ("min", "max")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Minimum and maximum along `axis`."""
        return {"min": self.reduce(np.min, observations), "max": self.reduce(np.max, observations)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse a minimum above its maximum, and a range that is too wide for float32; keep it otherwise."""
        with np.errstate(over="ignore"):
            width = statistics["max"] - statistics["min"]
        if not np.all((width >= 0) & (width < np.inf)):
            raise ValueError(f"the minimum must not be above the maximum, nor infinitely far below: {statistics}")
        self._width = np.where(width > 0, width, np.float32(1))

    def normalize_value(self, value: Array) -> Array:
        """(value - min) / (max - min)."""
        return np.asarray((value - self.statistics["min"]) / self._width)
