"""Wrappers, one file each."""

from maze_pl.envs.wrappers.dict_action_wrapper import DictActionWrapper as DictActionWrapper
from maze_pl.envs.wrappers.dict_observation_wrapper import DictObservationWrapper as DictObservationWrapper
from maze_pl.envs.wrappers.discretize_actions_wrapper import DiscretizeActionsWrapper as DiscretizeActionsWrapper
from maze_pl.envs.wrappers.event_logs_wrapper import EventLogsWrapper as EventLogsWrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper as LogStatsWrapper
from maze_pl.envs.wrappers.monitoring_wrapper import MazeEnvMonitoringWrapper as MazeEnvMonitoringWrapper
from maze_pl.envs.wrappers.no_dict_action_wrapper import NoDictActionWrapper as NoDictActionWrapper
from maze_pl.envs.wrappers.no_dict_observation_wrapper import NoDictObservationWrapper as NoDictObservationWrapper
from maze_pl.envs.wrappers.no_dict_spaces_wrapper import NoDictSpacesWrapper as NoDictSpacesWrapper
from maze_pl.envs.wrappers.observation_normalization.estimation import dump_statistics as dump_statistics
from maze_pl.envs.wrappers.observation_normalization.estimation import load_statistics as load_statistics
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    ObservationNormalizationWrapper as ObservationNormalizationWrapper,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    estimate_observation_normalization_statistics as estimate_observation_normalization_statistics,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    make_normalized_env_factory as make_normalized_env_factory,
)
from maze_pl.envs.wrappers.observation_normalization.observation_normalization_wrapper import (
    obtain_normalization_statistics as obtain_normalization_statistics,
)
from maze_pl.envs.wrappers.observation_normalization.strategies import (
    MeanZeroStdOneObservationNormalizationStrategy as MeanZeroStdOneObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_normalization.strategies import (
    ObservationNormalizationStrategy as ObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_normalization.strategies import (
    RangeZeroOneObservationNormalizationStrategy as RangeZeroOneObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers.observation_stack_wrapper import ObservationStackWrapper as ObservationStackWrapper
from maze_pl.envs.wrappers.observation_visualization_wrapper import (
    ObservationVisualizationWrapper as ObservationVisualizationWrapper,
)
from maze_pl.envs.wrappers.pre_processing.pre_processing_wrapper import PreProcessingWrapper as PreProcessingWrapper
from maze_pl.envs.wrappers.pre_processing.pre_processors import FlattenPreProcessor as FlattenPreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import OneHotPreProcessor as OneHotPreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import PreProcessor as PreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import ResizeImgPreProcessor as ResizeImgPreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import Rgb2GrayPreProcessor as Rgb2GrayPreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import TransposePreProcessor as TransposePreProcessor
from maze_pl.envs.wrappers.pre_processing.pre_processors import UnSqueezePreProcessor as UnSqueezePreProcessor
from maze_pl.envs.wrappers.random_reset_wrapper import RandomResetWrapper as RandomResetWrapper
from maze_pl.envs.wrappers.return_normalization_reward_wrapper import (
    ReturnNormalizationRewardWrapper as ReturnNormalizationRewardWrapper,
)
from maze_pl.envs.wrappers.reward_clipping_wrapper import RewardClippingWrapper as RewardClippingWrapper
from maze_pl.envs.wrappers.reward_scaling_wrapper import RewardScalingWrapper as RewardScalingWrapper
from maze_pl.envs.wrappers.sorted_spaces_wrapper import SortedSpacesWrapper as SortedSpacesWrapper
from maze_pl.envs.wrappers.split_actions_wrapper import SplitActionsWrapper as SplitActionsWrapper
from maze_pl.envs.wrappers.step_skip_wrapper import StepSkipWrapper as StepSkipWrapper
from maze_pl.envs.wrappers.time_limit_wrapper import TimeLimitWrapper as TimeLimitWrapper
from maze_pl.envs.wrappers.trajectory_recording_wrapper import TrajectoryRecordingWrapper as TrajectoryRecordingWrapper
