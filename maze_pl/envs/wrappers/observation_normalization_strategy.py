"""Base class of strategies that normalise a single observation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.structured_env import Array

Range = Sequence[float | None]
Statistics = dict[str, Array]


class ObservationNormalizationStrategy(ABC):
    """Normalises one observation by statistics that are given, or estimated from samples.

    Args:
        observation_space: Space of the observation.
        clip_range: Range that normalised values are clipped to; None for an end without a limit.
        axis: Axes of the stacked samples [N, ...] along which statistics are computed; they include
            0, the axis of the samples. `0` gives each element of the observation its own
            statistics, None gives all elements the same.

    Attributes:
        statistics: The statistics in float32, for use in `normalize_value`; empty until they are
            known.
    """

    statistics_names: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that the strategy needs; checked when they are set."""
    is_elementwise: ClassVar[bool] = False
    """True if `normalize_value` also takes several observations, with a further first axis."""

    def __init__(
        self,
        observation_space: spaces.Box,
        clip_range: Range = (None, None),
        axis: int | Sequence[int] | None = None,
    ) -> None:
        self.observation_space = observation_space
        ends = [far if end is None else end for end, far in zip(clip_range, (-np.inf, np.inf), strict=False)]
        if len(clip_range) != 2 or not ends[0] <= ends[1]:
            raise ValueError(f"clip_range={list(clip_range)} must be given as [lowest, highest]")
        self.clip_low, self.clip_high = np.float32(ends[0]), np.float32(ends[1])
        self.axis: tuple[int, ...] | None = None
        if axis is not None:
            self.axis = (axis,) if isinstance(axis, int) else tuple(axis)
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
                fault = f"statistic {name!r} has shape {value.shape}, which does not fit observations {shape}"
                remedy = "statistics of all items together, as of axis: [0, 1], fit any number of them"
                raise ValueError(f"{fault}; {remedy}")
            if not np.isfinite(single[name]).all():
                raise ValueError(f"statistic {name!r} is not finite: {value}")
        self.check_stats(single)
        self._exact, self.statistics = exact, single

    def check_stats(self, statistics: Statistics) -> None:
        """Raise ValueError if the statistics are unusable; by default, if they have no values."""
        if not all(value.size for value in statistics.values()) or not statistics:
            raise ValueError(f"{type(self).__name__} cannot normalise by {statistics}")

    def normalize(self, value: Array) -> Array:
        """The normalised observation, clipped, in float32."""
        value = np.maximum(self.normalize_value(value), self.clip_low)  # np.clip takes three times as long
        return np.asarray(np.minimum(value, self.clip_high), dtype=np.float32)

    def normalize_many(self, values: Array) -> Array:
        """The normalised observations [n, ...], one after the other unless `is_elementwise` is stated.

        Args:
            values: [n, ...] observations.
        """
        methods = ("normalize_value", "normalize")
        if self.is_elementwise and all(is_defined_with(type(self), "is_elementwise", name) for name in methods):
            return self.normalize(values)
        return np.stack([self.normalize(value) for value in values])

    def normalized_space(self) -> spaces.Box:
        """Space of normalised observations; it does not depend on the statistics."""
        return spaces.Box(self.clip_low, self.clip_high, self.observation_space.shape, np.float32)
