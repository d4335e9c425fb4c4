"""Scaling of rewards in arrays."""

from __future__ import annotations

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray
from maze_pl.envs.arrays.reward_array_wrapper import RewardArrayWrapper


class RewardScalingArrayWrapper(RewardArrayWrapper):
    """Multiplies rewards by a factor; see `RewardScalingWrapper`.

    Args:
        env: The environment to wrap.
        scale: The factor, a finite number.
    """

    def __init__(self, env: ArrayEnv, scale: float) -> None:
        super().__init__(env)
        self.scale = scale

    def rewards(self, rewards: AnyArray) -> AnyArray:
        """Return the rewards times the factor."""
        return rewards * self.scale
