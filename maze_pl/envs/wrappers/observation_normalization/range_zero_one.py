"""Normalisation to the range from zero to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)


class RangeZeroOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Maps the range of values to [0, 1]: statistics `min` and `max`.

    Values beyond the range are mapped beyond [0, 1], unless they are clipped; what is constant is mapped to 0.
    """

    statistics_names = ("min", "max")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Minimum and maximum along `axis`."""
        return {"min": self.reduce(np.min, observations), "max": self.reduce(np.max, observations)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse a minimum above its maximum."""
        if np.any(statistics["min"] > statistics["max"]):
            raise ValueError(f"the minimum must not be above the maximum: {statistics}")

    def set_normalization_stats(self, statistics: Mapping[str, Any]) -> None:
        """Use these statistics; see `ObservationNormalizationStrategy.set_normalization_stats`."""
        super().set_normalization_stats(statistics)
        width = self.statistics["max"] - self.statistics["min"]
        self._width = np.where(width > 0, width, np.float32(1))

    def normalize_value(self, value: Array) -> Array:
        """(value - min) / (max - min)."""
        return np.asarray((value - self.statistics["min"]) / self._width)
