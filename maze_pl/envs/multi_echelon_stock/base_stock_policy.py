"""Base stock: each echelon orders up to a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.ordering_policy import OrderingPolicy
from maze_pl.envs.structured_env import Array

_SAFETY = 1.65
"""Standard deviations of demand during the lead time, in the levels that are used without optimised ones."""


class BaseStockPolicy(OrderingPolicy):
    """Orders up to a level in each period, whatever is missing to it.

        order_i = level_i + gain_i * (mean of the last H demands - mean demand) - inventory position_i

    With all gains 0, this is base stock: for a stationary demand, without fixed costs and limits,
    and with backlogs, echelon base stock is optimal (Clark and Scarf 1960, Management Science 6(4),
    doi:10.1287/mnsc.6.4.475). A chain of levels of installation stock, as here, orders the same
    quantities once each position has come down to its level (Axsaeter and Rosling 1993, Management
    Science 39(10), doi:10.1287/mnsc.39.10.1274). With gains, levels follow the demand that the
    echelon observes.

    Args:
        action_spaces_dict: Action space of each sub-step.
        levels: Level of each echelon, in units; mean demand during (lead time + 1) periods plus
            1.65 of its standard deviations if None. See `optimise_base_stock`.
        gains: Gain of each echelon; 0 if None.

    Raises:
        ValueError: The numbers of levels and gains differ; in `order`, the chain has no history for gains.
    """

    def __init__(
        self,
        action_spaces_dict: Mapping[StepKey, spaces.Dict],
        levels: Sequence[int] | None = None,
        gains: Sequence[float] | None = None,
    ) -> None:
        super().__init__(action_spaces_dict)
        if levels is not None and gains is not None and len(levels) != len(gains):
            raise ValueError(f"{levels=} and {gains=} need one entry for each echelon")
        self.levels = levels
        self.gains = gains

    def order(self, chain: StockChain, echelon: int, position: Array, received: Array) -> Array:
        """Return what is missing to the level."""
        level: Array | float = _usual_level(chain, echelon)
        if self.levels is not None:
            if len(self.levels) != chain.n_echelons:
                raise ValueError(
                    f"levels={list(self.levels)} does not have one entry for each of {chain.n_echelons} echelons"
                )
            level = self.levels[echelon]
        if self.gains is not None:
            if len(self.gains) != chain.n_echelons:
                raise ValueError(
                    f"gains={list(self.gains)} does not have one entry for each of {chain.n_echelons} echelons"
                )
            if not chain.history:
                came = f"gains={list(self.gains)} follow the last demands, of which a chain with history=0 keeps none"
                raise ValueError(f"{came}: set its history, or leave gains out")
            deviation = received.mean(axis=1) - chain.demand.mean
            level = np.rint(level + self.gains[echelon] * deviation)
        return np.asarray(level - position)


def _usual_level(chain: StockChain, echelon: int) -> int:
    """Level that covers most demands during the lead time and the current period."""
    mean = chain.demand.mean * (int(chain.lead[echelon]) + 1)
    return round(mean + _SAFETY * sqrt(mean))
