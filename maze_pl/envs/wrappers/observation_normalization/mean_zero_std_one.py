"""Normalisation to mean zero and standard deviation one."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)

RELATIVE_TOLERANCE = 1e-7
"""Spread, relative to the largest value, up to which values count as constant: float32 has no more digits."""


class MeanZeroStdOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Subtracts the mean and divides by the standard deviation: statistics `mean` and `std`.

    What is constant in the samples is only shifted: its standard deviation is taken as 1.
    """

    statistics_names = ("mean", "std")

    def estimate_stats(self, observations: Array) -> Statistics:
        """Mean and standard deviation along `axis`."""
        std = self.reduce(np.std, observations)
        constant = std <= RELATIVE_TOLERANCE * self.reduce(np.max, np.abs(observations))
        return {"mean": self.reduce(np.mean, observations), "std": np.where(constant, 1.0, std)}

    def check_stats(self, statistics: Statistics) -> None:
        """Refuse standard deviations that are not positive."""
        if np.any(statistics["std"] <= 0):
            raise ValueError(f"the standard deviation must be positive, not {statistics['std']}")

    def normalize_value(self, value: Array) -> Array:
        """(value - mean) / std."""
        return np.asarray((value - self.statistics["mean"]) / self.statistics["std"])
