"""Wrappers, one file each."""

from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.observation_normalization import (
    MeanZeroStdOneObservationNormalizationStrategy,
    ObservationNormalizationStrategy,
    ObservationNormalizationWrapper,
    RangeZeroOneObservationNormalizationStrategy,
    dump_statistics,
    load_statistics,
    obtain_normalization_statistics,
)
from maze_pl.envs.wrappers.return_normalization_reward_wrapper import ReturnNormalizationRewardWrapper
from maze_pl.envs.wrappers.reward_clipping_wrapper import RewardClippingWrapper
from maze_pl.envs.wrappers.reward_scaling_wrapper import RewardScalingWrapper
from maze_pl.envs.wrappers.time_limit_wrapper import TimeLimitWrapper

__all__ = [
    "LogStatsWrapper",
    "MeanZeroStdOneObservationNormalizationStrategy",
    "ObservationNormalizationStrategy",
    "ObservationNormalizationWrapper",
    "RangeZeroOneObservationNormalizationStrategy",
    "ReturnNormalizationRewardWrapper",
    "RewardClippingWrapper",
    "RewardScalingWrapper",
    "TimeLimitWrapper",
    "dump_statistics",
    "load_statistics",
    "obtain_normalization_statistics",
]
