"""(s, S): each echelon orders up to S when its inventory position has fallen to s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.ordering_policy import OrderingPolicy
from maze_pl.envs.structured_env import Array


class ReorderPolicy(OrderingPolicy):
    """Orders up to S_i when the inventory position of echelon i is at most s_i.

    For one echelon with fixed order costs and backlogs, such a policy is optimal (Scarf 1960, The
    optimality of (S, s) policies in the dynamic inventory problem).

    Args:
        action_spaces_dict: Action space of each sub-step.
        reorder_points: s of each echelon, in units.
        levels: S of each echelon, in units.

    Raises:
        ValueError: The numbers of entries differ, or a level is not above its reorder point.
    """

    def __init__(
        self,
        action_spaces_dict: Mapping[StepKey, spaces.Dict],
        reorder_points: Sequence[int],
        levels: Sequence[int],
    ) -> None:
        super().__init__(action_spaces_dict)
        if len(levels) != len(reorder_points) or any(np.array(levels) <= np.array(reorder_points)):
            raise ValueError(f"{levels=} must be above {reorder_points=}, with one entry for each echelon")
        self.reorder_points = list(reorder_points)
        self.levels = list(levels)

    def order(self, chain: StockChain, echelon: int, position: Array, received: Array) -> Array:
        """Return what is missing to S, or 0 above s."""
        if len(self.levels) != chain.n_echelons:
            raise ValueError(f"levels={self.levels} does not have one entry for each of {chain.n_echelons} echelons")
        is_low = position <= self.reorder_points[echelon]
        return np.where(is_low, self.levels[echelon] - position, 0)
