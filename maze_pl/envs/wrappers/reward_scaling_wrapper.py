"""Scaling of rewards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.reward_scaling_array_wrapper import RewardScalingArrayWrapper
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv


class RewardScalingWrapper(RewardWrapper):
    """Multiplies rewards by a factor.

    Args:
        env: The environment to wrap.
        scale: The factor.

    Raises:
        ValueError: The factor is not finite.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = RewardScalingWrapper.wrap(GymMazeEnv("CartPole-v1"), scale=0.1)
        >>> _ = env.reset(seed=1)
        >>> env.step({"action": 1})[1]
        0.1
    """

    def __init__(self, env: StructuredEnv, scale: float) -> None:
        super().__init__(env)
        if not math.isfinite(scale):
            raise ValueError(f"RewardScalingWrapper: scale={scale} must be a finite number")
        self.scale = scale

    def reward(self, reward: float) -> float:
        """The reward times the factor."""
        return reward * self.scale

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return RewardScalingArrayWrapper(env, self.scale)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors."""
        from maze_pl.envs.tensors.reward_scaling_tensor_wrapper import RewardScalingTensorWrapper

        return RewardScalingTensorWrapper(env, self.scale)
