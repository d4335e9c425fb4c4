"""Scaling of rewards in tensors."""

from __future__ import annotations

from torch import Tensor

from maze_pl.envs.tensors.reward_tensor_wrapper import RewardTensorWrapper
from maze_pl.envs.tensors.tensor_env import TensorEnv


class RewardScalingTensorWrapper(RewardTensorWrapper):
    """Multiplies rewards by a factor; see `RewardScalingWrapper`.

    Args:
        env: The environment to wrap.
        scale: The factor.
    """

    def __init__(self, env: TensorEnv, scale: float) -> None:
        super().__init__(env)
        self.scale = scale

    def rewards(self, rewards: Tensor) -> Tensor:
        """Return the rewards times the factor."""
        return rewards * self.scale
