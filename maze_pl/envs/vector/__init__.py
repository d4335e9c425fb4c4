"""Vector environments."""

from .sequential_vector_env import SequentialVectorEnv as SequentialVectorEnv
from .subproc_vector_env import SubprocVectorEnv as SubprocVectorEnv
from .vector_env import StepExtras as StepExtras, VectorEnv as VectorEnv
