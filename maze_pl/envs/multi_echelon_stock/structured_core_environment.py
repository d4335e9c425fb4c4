"""The simulation of a chain of stocks, whose echelons order one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.core_environment import StockCoreEnvironment
from maze_pl.envs.multi_echelon_stock.cost_reward_aggregator import CostRewardAggregator
from maze_pl.envs.multi_echelon_stock.echelon_reward_aggregator import EchelonRewardAggregator, checked_aggregator
from maze_pl.envs.multi_echelon_stock.objects import StockMazeAction, StockMazeState
from maze_pl.envs.multi_echelon_stock.simulation import accepted_orders
from maze_pl.envs.structured_env import Array


class StructuredStockCoreEnvironment(StockCoreEnvironment):
    """A serial chain of stocks with an agent for each echelon, in one sub-step.

    In each period the echelons act one after the other, echelon 0 first, so that each one knows the
    order that it has just received. Acts before the last one have reward 0.

    Args:
        chain: Description of the chain.
        reward_aggregator: Computes rewards; `CostRewardAggregator()` if None.

    Raises:
        TypeError: The aggregator does not tell the rewards of echelons.
    """

    def __init__(self, chain: StockChain, reward_aggregator: EchelonRewardAggregator | None = None) -> None:
        self._amounts: list[int] = []  # of this period, from echelon 0
        self._orders = np.zeros(chain.n_echelons, np.int64)
        self._actor_rewards: Array | None = None
        super().__init__(chain, checked_aggregator(reward_aggregator or CostRewardAggregator()))

    def reset(self) -> StockMazeState:
        """Start an episode with the initial stock."""
        self._amounts = []
        self._orders = np.zeros(self.chain.n_echelons, np.int64)
        return super().reset()

    def step(self, maze_action: StockMazeAction) -> tuple[StockMazeState, float, bool, bool, dict[str, Any]]:
        """Order for one echelon; the last one completes the period.

        Returns:
            State, reward, terminated (always False), truncated (after the last period), and info.

        Raises:
            ValueError: The action does not have exactly one amount.
        """
        if len(maze_action.amounts) != 1:
            raise ValueError(f"the action of an echelon names {len(maze_action.amounts)} amounts; give one")
        self._amounts += maze_action.amounts
        n_known = len(self._amounts)
        amounts = np.array(self._amounts + [0] * (self.chain.n_echelons - n_known))
        if n_known < self.chain.n_echelons:
            self._orders[:n_known] = accepted_orders(self.chain, self.state, amounts[np.newaxis])[0, :n_known]
            return self.get_maze_state(), 0.0, False, False, {}
        self._play(amounts)
        self._amounts = []
        self._orders = np.zeros(self.chain.n_echelons, np.int64)
        rewards = self.reward_aggregator.attributed_rewards()
        assert rewards is not None
        self._actor_rewards = self.reward_aggregator.shared(rewards)[0]
        reward = float(self.reward_aggregator.team_reward(rewards)[0])
        self.context.increment_env_step()
        return self.get_maze_state(), reward, False, self.period >= self.chain.periods, {}

    def get_maze_state(self) -> StockMazeState:
        """Return a copy of the state."""
        return replace(super().get_maze_state(), orders=self._orders.copy(), echelon=len(self._amounts))

    def actor_id(self) -> ActorID:
        """Return the echelon that acts next."""
        return ActorID(0, len(self._amounts))

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """One agent for each echelon."""
        return {0: self.chain.n_echelons}

    def get_actor_rewards(self) -> Array | None:
        """Return the rewards of the echelons in the last period."""
        return self._actor_rewards
