"""Reward for serving customers at once with little stock."""

from __future__ import annotations

from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator
from maze_pl.envs.multi_echelon_stock.simulation import PeriodResult
from maze_pl.envs.structured_env import Array


class ServiceRewardAggregator(EchelonRewardAggregator):
    """Minus holding and order costs, and minus a penalty for each unit that customers did not get at once.

    Unlike backlog costs, the penalty does not depend on how long customers wait, so that it aims at
    a fill rate.

    Args:
        penalty: Penalty of a unit of demand that was not served at once; echelon 0 bears it.
        scale: Factor of rewards.
        team_share: Share of an echelon's rewards that is divided equally among all echelons.
        baseline: Cost of a period that rewards are compared with; see `EchelonRewardAggregator`.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self, penalty: float = 10.0, scale: float = 1.0, team_share: float = 1.0, baseline: float = 0.0
    ) -> None:
        super().__init__(scale, team_share, baseline)
        if not 0 <= penalty < float("inf"):
            raise ValueError(f"{penalty=} must be a finite number of at least 0")
        self.penalty = float(penalty)

    def echelon_rewards(self, result: PeriodResult) -> Array:
        """Return minus the costs without those of shortages, and minus the penalties."""
        rewards: Array = 0.0 - (result.holding + result.fixed)
        rewards[:, 0] -= self.penalty * (result.demand - result.served)
        return rewards
