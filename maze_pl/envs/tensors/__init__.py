"""Environments whose episodes live in torch tensors, so that a GPU steps them without the host.

Only environments that compute all their episodes by the same operations belong here; arrays of
NumPy, and environments whose episodes are at different sub-steps, belong in `arrays`.
"""

from .cartpole_tensor_env import CartPoleTensorEnv as CartPoleTensorEnv
from .reward_tensor_wrapper import RewardTensorWrapper as RewardTensorWrapper
from .tensor_env import Outcome as Outcome, TensorEnv as TensorEnv
from .tensor_wrapper import TensorWrapper as TensorWrapper
