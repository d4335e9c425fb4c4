"""Environments: simulations, their conversions, and wrappers around them."""

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
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, RewardWrapper, Wrapper, wrappers_of

__all__ = [
    "Action",
    "ActionConversionInterface",
    "ActionWrapper",
    "CoreEnv",
    "GymActionConversion",
    "GymCoreEnv",
    "GymMazeEnv",
    "GymObservationConversion",
    "MazeEnv",
    "Observation",
    "ObservationConversionInterface",
    "ObservationWrapper",
    "RewardWrapper",
    "StructuredEnv",
    "Wrapper",
    "make_gym_maze_env",
    "wrappers_of",
]
