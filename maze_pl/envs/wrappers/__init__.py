"""Wrappers, one file each."""

from maze_pl.envs.wrappers.dict_action_wrapper import DictActionWrapper
from maze_pl.envs.wrappers.dict_observation_wrapper import DictObservationWrapper
from maze_pl.envs.wrappers.discretize_actions_wrapper import DiscretizeActionsWrapper
from maze_pl.envs.wrappers.event_logs_wrapper import EventLogsWrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.monitoring_wrapper import MazeEnvMonitoringWrapper
from maze_pl.envs.wrappers.no_dict_action_wrapper import NoDictActionWrapper
from maze_pl.envs.wrappers.no_dict_observation_wrapper import NoDictObservationWrapper
from maze_pl.envs.wrappers.no_dict_spaces_wrapper import NoDictSpacesWrapper
from maze_pl.envs.wrappers.observation_normalization.estimation import dump_statistics, load_statistics
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    estimate_observation_normalization_statistics,
    make_normalized_env_factory,
    obtain_normalization_statistics,
)
from maze_pl.envs.wrappers.observation_normalization.strategies import (
    MeanZeroStdOneObservationNormalizationStrategy,
    ObservationNormalizationStrategy,
    RangeZeroOneObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_stack_wrapper import ObservationStackWrapper
from maze_pl.envs.wrappers.observation_visualization_wrapper import ObservationVisualizationWrapper
from maze_pl.envs.wrappers.pre_processing.pre_processing_wrapper import PreProcessingWrapper
from maze_pl.envs.wrappers.pre_processing.pre_processors import (
    FlattenPreProcessor,
    OneHotPreProcessor,
    PreProcessor,
    ResizeImgPreProcessor,
    Rgb2GrayPreProcessor,
    TransposePreProcessor,
    UnSqueezePreProcessor,
)
from maze_pl.envs.wrappers.random_reset_wrapper import RandomResetWrapper
from maze_pl.envs.wrappers.return_normalization_reward_wrapper import ReturnNormalizationRewardWrapper
from maze_pl.envs.wrappers.reward_clipping_wrapper import RewardClippingWrapper
from maze_pl.envs.wrappers.reward_scaling_wrapper import RewardScalingWrapper
from maze_pl.envs.wrappers.sorted_spaces_wrapper import SortedSpacesWrapper
from maze_pl.envs.wrappers.split_actions_wrapper import SplitActionsWrapper
from maze_pl.envs.wrappers.step_skip_wrapper import StepSkipWrapper
from maze_pl.envs.wrappers.time_limit_wrapper import TimeLimitWrapper
from maze_pl.envs.wrappers.trajectory_recording_wrapper import TrajectoryRecordingWrapper

__all__ = [
    "DictActionWrapper",
    "DictObservationWrapper",
    "DiscretizeActionsWrapper",
    "EventLogsWrapper",
    "FlattenPreProcessor",
    "LogStatsWrapper",
    "MazeEnvMonitoringWrapper",
    "MeanZeroStdOneObservationNormalizationStrategy",
    "NoDictActionWrapper",
    "NoDictObservationWrapper",
    "NoDictSpacesWrapper",
    "ObservationNormalizationStrategy",
    "ObservationNormalizationWrapper",
    "ObservationStackWrapper",
    "ObservationVisualizationWrapper",
    "OneHotPreProcessor",
    "PreProcessingWrapper",
    "PreProcessor",
    "RandomResetWrapper",
    "RangeZeroOneObservationNormalizationStrategy",
    "ResizeImgPreProcessor",
    "ReturnNormalizationRewardWrapper",
    "RewardClippingWrapper",
    "RewardScalingWrapper",
    "Rgb2GrayPreProcessor",
    "SortedSpacesWrapper",
    "SplitActionsWrapper",
    "StepSkipWrapper",
    "TimeLimitWrapper",
    "TrajectoryRecordingWrapper",
    "TransposePreProcessor",
    "UnSqueezePreProcessor",
    "dump_statistics",
    "estimate_observation_normalization_statistics",
    "load_statistics",
    "make_normalized_env_factory",
    "obtain_normalization_statistics",
]
