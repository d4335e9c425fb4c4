"""Vector environments."""

from maze_pl.envs.vector.native_vector_env import NativeVectorEnv
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.subproc_vector_env import SubprocVectorEnv
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv

__all__ = ["NativeVectorEnv", "SequentialVectorEnv", "StepExtras", "SubprocVectorEnv", "VectorEnv"]
