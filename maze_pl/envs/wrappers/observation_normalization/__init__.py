"""Observation normalisation: the wrapper, its strategies, and the estimation of statistics."""

from maze_pl.envs.wrappers.observation_normalization.estimation import dump_statistics, load_statistics
from maze_pl.envs.wrappers.observation_normalization.mean_zero_std_one import (
    MeanZeroStdOneObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_strategy import (
    ObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    obtain_normalization_statistics,
)
from maze_pl.envs.wrappers.observation_normalization.range_zero_one import (
    RangeZeroOneObservationNormalizationStrategy,
)

__all__ = [
    "MeanZeroStdOneObservationNormalizationStrategy",
    "ObservationNormalizationStrategy",
    "ObservationNormalizationWrapper",
    "RangeZeroOneObservationNormalizationStrategy",
    "dump_statistics",
    "load_statistics",
    "obtain_normalization_statistics",
]
