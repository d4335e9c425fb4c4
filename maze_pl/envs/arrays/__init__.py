"""Environments whose episodes are kept in arrays and stepped together, without a loop over them.

The contract, random streams that equal NumPy's, and array forms of wrappers belong here. Simulations
of single episodes and the vector environments that loop over them do not.
"""

from .array_env import ArrayEnv as ArrayEnv
from .array_events import ArrayEvent as ArrayEvent, ArrayEvents as ArrayEvents
from .array_form_env import ArrayFormEnv as ArrayFormEnv
from .array_maze_env import ArrayMazeEnv as ArrayMazeEnv
from .array_step import ArrayStep as ArrayStep
from .array_vector_env import ArrayVectorEnv as ArrayVectorEnv
from .array_wrapper import ArrayWrapper as ArrayWrapper
from .cartpole_array_env import CartPoleArrayEnv as CartPoleArrayEnv
from .envpool_env import EnvPoolVectorEnv as EnvPoolVectorEnv, make_envpool_env as make_envpool_env
from .gym_vector_array_env import GymVectorArrayEnv as GymVectorArrayEnv
from .observation_array_wrapper import ObservationArrayWrapper as ObservationArrayWrapper
from .pendulum_array_env import PendulumArrayEnv as PendulumArrayEnv
from .random_streams import RandomStreams as RandomStreams
from .reward_array_wrapper import RewardArrayWrapper as RewardArrayWrapper
from .time_limit_array_wrapper import TimeLimitArrayWrapper as TimeLimitArrayWrapper
