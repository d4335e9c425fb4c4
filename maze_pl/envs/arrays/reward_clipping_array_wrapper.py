"""Clipping of rewards in arrays."""

from __future__ import annotations

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray
from maze_pl.envs.arrays.reward_array_wrapper import RewardArrayWrapper


class RewardClippingArrayWrapper(RewardArrayWrapper):
    """Clips the reward of each act to a range; see `RewardClippingWrapper`.

    Args:
        env: The environment to wrap.
        min_val: Lower end of the range.
        max_val: Upper end of the range, not below it.
    """

    def __init__(self, env: ArrayEnv, min_val: float, max_val: float) -> None:
        super().__init__(env)
        self.min_val, self.max_val = min_val, max_val

    def rewards(self, rewards: AnyArray) -> AnyArray:
        """Return the nearest rewards within the range."""
        return rewards.clip(self.min_val, self.max_val)
