"""Wrappers of environments, one file each, and strategies that they are configured with.

This folder holds everything that changes or records the data that a single environment exchanges
with agents. Wrappers are independent of training; several environments are stepped together in
`maze_pl.envs.vector`.
"""

from .action_masks_wrapper import ActionMasksWrapper as ActionMasksWrapper
from .log_stats_wrapper import LogStatsWrapper as LogStatsWrapper
from .maze_env_monitoring_wrapper import MazeEnvMonitoringWrapper as MazeEnvMonitoringWrapper
from .observation_visualization_wrapper import (
    ObservationVisualizationWrapper as ObservationVisualizationWrapper,
)
from .observation_normalization_wrapper import (
    ObservationNormalizationWrapper as ObservationNormalizationWrapper,
)
from .observation_normalization_wrapper import dump_statistics as dump_statistics
from .normalization_statistics import load_statistics as load_statistics
from .normalization_statistics import (
    estimate_observation_normalization_statistics as estimate_observation_normalization_statistics,
)
from .normalization_statistics import make_normalized_env_factory as make_normalized_env_factory
from .normalization_statistics import (
    obtain_normalization_statistics as obtain_normalization_statistics,
)
from .observation_normalization_strategy import (
    ObservationNormalizationStrategy as ObservationNormalizationStrategy,
)
from .mean_zero_std_one_strategy import (
    MeanZeroStdOneObservationNormalizationStrategy as MeanZeroStdOneObservationNormalizationStrategy,
)
from .range_zero_one_strategy import (
    RangeZeroOneObservationNormalizationStrategy as RangeZeroOneObservationNormalizationStrategy,
)
from .flatten_pre_processor import FlattenPreProcessor as FlattenPreProcessor
from .one_hot_pre_processor import OneHotPreProcessor as OneHotPreProcessor
from .pre_processing_wrapper import PreProcessingWrapper as PreProcessingWrapper
from .pre_processors import PreProcessor as PreProcessor
from .resize_img_pre_processor import ResizeImgPreProcessor as ResizeImgPreProcessor
from .rgb2_gray_pre_processor import Rgb2GrayPreProcessor as Rgb2GrayPreProcessor
from .transpose_pre_processor import TransposePreProcessor as TransposePreProcessor
from .un_squeeze_pre_processor import UnSqueezePreProcessor as UnSqueezePreProcessor
from .event_logs_wrapper import EventLogsWrapper as EventLogsWrapper
from .spaces_recording_wrapper import SpacesRecordingWrapper as SpacesRecordingWrapper
from .trajectory_recording_wrapper import TrajectoryRecordingWrapper as TrajectoryRecordingWrapper
from .return_normalization_reward_wrapper import (
    ReturnNormalizationRewardWrapper as ReturnNormalizationRewardWrapper,
)
from .running_observation_normalization_wrapper import (
    RunningObservationNormalizationWrapper as RunningObservationNormalizationWrapper,
)
from .reward_clipping_wrapper import RewardClippingWrapper as RewardClippingWrapper
from .reward_scaling_wrapper import RewardScalingWrapper as RewardScalingWrapper
from .dict_action_wrapper import DictActionWrapper as DictActionWrapper
from .dict_observation_wrapper import DictObservationWrapper as DictObservationWrapper
from .no_dict_action_wrapper import NoDictActionWrapper as NoDictActionWrapper
from .no_dict_observation_wrapper import NoDictObservationWrapper as NoDictObservationWrapper
from .no_dict_spaces_wrapper import NoDictSpacesWrapper as NoDictSpacesWrapper
from .sorted_spaces_wrapper import SortedSpacesWrapper as SortedSpacesWrapper
from .split_actions_wrapper import SplitActionsWrapper as SplitActionsWrapper
from .discretize_actions_wrapper import DiscretizeActionsWrapper as DiscretizeActionsWrapper
from .observation_stack_wrapper import ObservationStackWrapper as ObservationStackWrapper
from .residual_action_wrapper import ResidualActionWrapper as ResidualActionWrapper
from .random_reset_wrapper import RandomResetWrapper as RandomResetWrapper
from .step_skip_wrapper import StepSkipWrapper as StepSkipWrapper
from .time_limit_wrapper import TimeLimitWrapper as TimeLimitWrapper
