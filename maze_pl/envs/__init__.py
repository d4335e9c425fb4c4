"""Environments: contracts, conversions, building with wrappers, rendering, and the doctor.

This folder holds everything about a single environment. `wrappers`, several environments that are stepped
together (`vector`, `arrays`, `tensors`), the doctor (`checker`) and each problem, such as `cutting_2d`, have
separate folders. Nothing here knows of networks or training.
"""

from maze_pl.core.actor_id import ActorID as ActorID
from maze_pl.core.state_rules import SavesEpisode as SavesEpisode

from .array_forms import make_wrapped_arrays as make_wrapped_arrays
from .arrays import ArrayEnv as ArrayEnv, ArrayStep as ArrayStep, ArrayVectorEnv as ArrayVectorEnv
from .arrays import GymVectorArrayEnv as GymVectorArrayEnv, make_envpool_env as make_envpool_env
from .arrays import CartPoleArrayEnv as CartPoleArrayEnv, PendulumArrayEnv as PendulumArrayEnv
from .checker import CheckReport as CheckReport, check_env as check_env
from .core_env import ActionConversionInterface as ActionConversionInterface
from .core_env import CoreEnv as CoreEnv
from .core_env import take_over as take_over
from .core_env import ObservationConversionInterface as ObservationConversionInterface
from .core_env import RewardAggregatorInterface as RewardAggregatorInterface
from .weighted_reward_aggregator import WeightedRewardAggregator as WeightedRewardAggregator
from .gym_action_conversion import GymActionConversion as GymActionConversion
from .gym_core_env import GymCoreEnv as GymCoreEnv
from .gym_env import GymMazeEnv as GymMazeEnv, make_gym_maze_env as make_gym_maze_env
from .gym_observation_conversion import GymObservationConversion as GymObservationConversion
from .maze_env import MazeEnv as MazeEnv
from .no_array_form_error import NoArrayFormError as NoArrayFormError
from .no_tensor_form_error import NoTensorFormError as NoTensorFormError
from .pettingzoo_env import PettingZooMazeEnv as PettingZooMazeEnv, make_pettingzoo_env as make_pettingzoo_env
from .structured_env import (
    Action as Action,
    Observation as Observation,
    StructuredEnv as StructuredEnv,
)
from .rendering import IntRangeArg as IntRangeArg, OptionsArrayArg as OptionsArrayArg
from .rendering import Renderer as Renderer
from .rendering import draw_event_statistics as draw_event_statistics, save_gif as save_gif
from .gif_files import GifFiles as GifFiles
from .tensor_forms import make_wrapped_tensors as make_wrapped_tensors
from .trajectory_files import TrajectoryFiles as TrajectoryFiles
from .trajectory_record import StateRecord as StateRecord
from .trajectory_record import StateTrajectoryRecord as StateTrajectoryRecord
from .trajectory_record import read_trajectories as read_trajectories
from .trajectory_writer import TrajectoryWriter as TrajectoryWriter
from .vector import SequentialVectorEnv as SequentialVectorEnv, SubprocVectorEnv as SubprocVectorEnv
from .wrapper import (
    ActionWrapper as ActionWrapper,
    ObservationWrapper as ObservationWrapper,
    Wrapper as Wrapper,
)
from .two_decisions_wrapper import TwoDecisionsWrapper as TwoDecisionsWrapper
from .wrapper import RewardWrapper as RewardWrapper, wrappers_of as wrappers_of
