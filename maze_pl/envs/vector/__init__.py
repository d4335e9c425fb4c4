"""Vector environments."""

from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv as SequentialVectorEnv
from maze_pl.envs.vector.subproc_vector_env import SubprocVectorEnv as SubprocVectorEnv
from maze_pl.envs.vector.vector_env import StepExtras as StepExtras
from maze_pl.envs.vector.vector_env import VectorEnv as VectorEnv
