"""Vector environments: several environments that are stepped together, here or in processes.

Policies, rollouts and storage belong to `maze_pl.collect`.
"""

from .sequential_vector_env import SequentialVectorEnv as SequentialVectorEnv
from .subproc_vector_env import SubprocVectorEnv as SubprocVectorEnv
from .vector_env import StepExtras as StepExtras, VectorEnv as VectorEnv
