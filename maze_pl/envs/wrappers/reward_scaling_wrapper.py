"""Scaling of rewards."""

from __future__ import annotations

import math

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.reward_scaling_array_wrapper import RewardScalingArrayWrapper
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper


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
