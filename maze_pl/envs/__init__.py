"""Environments: simulations, their conversions, and wrappers around them."""

from maze_pl.envs.checker import CheckReport, check_env
from maze_pl.envs.cloning import take_over
from maze_pl.envs.conversions import ActionConversionInterface, ObservationConversionInterface
from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.gym_env import (
    GymActionConversion,
    GymCoreEnv,
    GymMazeEnv,
    GymObservationConversion,
    make_gym_maze_env,
)
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.rendering import IntRangeArg, OptionsArrayArg, Renderer, browse, draw_event_statistics, save_gif
from maze_pl.envs.reward import RewardAggregatorInterface, WeightedRewardAggregator
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.trajectory_record import (
    GifFiles,
    StateRecord,
    StateTrajectoryRecord,
    TrajectoryFiles,
    TrajectoryWriter,
)
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, RewardWrapper, Wrapper, wrappers_of

__all__ = [
    "Action",
    "ActionConversionInterface",
    "ActionWrapper",
    "CheckReport",
    "CoreEnv",
    "GifFiles",
    "GymActionConversion",
    "GymCoreEnv",
    "GymMazeEnv",
    "GymObservationConversion",
    "IntRangeArg",
    "MazeEnv",
    "Observation",
    "ObservationConversionInterface",
    "ObservationWrapper",
    "OptionsArrayArg",
    "Renderer",
    "RewardAggregatorInterface",
    "RewardWrapper",
    "StateRecord",
    "StateTrajectoryRecord",
    "StructuredEnv",
    "TrajectoryFiles",
    "TrajectoryWriter",
    "WeightedRewardAggregator",
    "Wrapper",
    "browse",
    "check_env",
    "draw_event_statistics",
    "make_gym_maze_env",
    "save_gif",
    "take_over",
    "wrappers_of",
]
