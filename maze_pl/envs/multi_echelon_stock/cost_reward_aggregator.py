"""Reward for low costs."""

from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator
from maze_pl.envs.multi_echelon_stock.simulation import PeriodResult
from maze_pl.envs.structured_env import Array


class CostRewardAggregator(EchelonRewardAggregator):
    """Minus the costs of the period: holding, backlogs and lost sales, and orders."""

    def echelon_rewards(self, result: PeriodResult) -> Array:
        """Return minus the costs of each echelon."""
        return 0.0 - result.costs
