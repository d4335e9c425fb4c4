"""A wrapper of another package, which changes rewards."""

from __future__ import annotations

from maze_pl.envs.wrapper import RewardWrapper


class DoubledReward(RewardWrapper):
    """Doubles rewards."""

    def reward(self, reward: float) -> float:
        return 2.0 * reward
