"""Normalisation by mean and standard deviation."""

from typing import Final

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
    Statistics,
)

RELATIVE_TOLERANCE: Final = 1e-7
"""Spread, relative to the largest value, up to which values count as constant: float32 has no more digits."""


class MeanZeroStdOneObservationNormalizationStrategy(ObservationNormalizationStrategy):
    """Subtracts the mean and divides by the standard deviation: statistics `mean` and `std`.

    Elements that are constant in the samples are only shifted: their standard deviation is taken as
    1.
    """

    statistics_names = ("mean", "std")
    is_elementwise = True

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
