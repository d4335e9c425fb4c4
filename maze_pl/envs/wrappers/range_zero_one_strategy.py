"""Normalisation by the range of values."""

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)


class RangeZeroOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Maps the range of values to [0, 1]: statistics `min` and `max`.

    Values outside the range are mapped outside [0, 1], unless they are clipped; constant elements
    are mapped to 0.
    """

    statistics_names = ("min", "max")
    is_elementwise = True

    def estimate_stats(self, observations: Array) -> Statistics:
        """Minimum and maximum along `axis`."""
        return {"min": self.reduce(np.min, observations), "max": self.reduce(np.max, observations)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse a minimum above its maximum, or a range too wide for float32; keep the width."""
        with np.errstate(over="ignore"):
            width = statistics["max"] - statistics["min"]
        if not np.all((width >= 0) & (width < np.inf)):
            raise ValueError(f"the minimum must not be above the maximum, nor infinitely far below: {statistics}")
        self._width = np.where(width > 0, width, np.float32(1))

    def normalize_value(self, value: Array) -> Array:
        """(value - min) / (max - min)."""
        return np.asarray((value - self.statistics["min"]) / self._width)
