"""Clipping of rewards in tensors."""

from __future__ import annotations

from torch import Tensor

from maze_pl.envs.tensors.reward_tensor_wrapper import RewardTensorWrapper
from maze_pl.envs.tensors.tensor_env import TensorEnv


class RewardClippingTensorWrapper(RewardTensorWrapper):
    """Clips the reward of each act to a range; see `RewardClippingWrapper`.

    Args:
        env: The environment to wrap.
        min_val: Lower end of the range.
        max_val: Upper end of the range, not below it.
    """

    def __init__(self, env: TensorEnv, min_val: float, max_val: float) -> None:
        super().__init__(env)
        self.min_val, self.max_val = min_val, max_val

    def rewards(self, rewards: Tensor) -> Tensor:
        """Return the nearest rewards within the range."""
        return rewards.clip(self.min_val, self.max_val)
