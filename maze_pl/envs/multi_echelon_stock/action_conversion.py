"""Actions: order quantities or levels, discrete or continuous."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.objects import StockMazeAction, StockMazeState
from maze_pl.envs.structured_env import Action, Array


class ActionConversion(ActionConversionInterface):
    """Actions of all echelons together, or of one of them.

    A discrete action is the number of units. A continuous one runs from -1 to 1, that is from 0 to
    the largest number of units of the echelon, and is rounded. What exceeds the largest number of
    an echelon counts as this number.

    Args:
        chain: Description of the chain.
        n_acting: Number of echelons that act together: all, or 1.
    """

    def __init__(self, chain: StockChain, n_acting: int) -> None:
        self.chain = chain
        self.n_acting = n_acting

    def space(self) -> spaces.Dict:
        """Space of `order`: multi-discrete or Box [E] for all echelons; discrete or Box [1] for one."""
        if self.chain.orders == "box":
            return spaces.Dict(order=spaces.Box(-1, 1, (self.n_acting,)))
        largest = self.chain.largest_action
        if self.n_acting > 1:
            return spaces.Dict(order=spaces.MultiDiscrete(largest + 1))
        return spaces.Dict(order=spaces.Discrete(int(largest.max()) + 1))

    def space_to_maze(self, action: Action, maze_state: StockMazeState) -> StockMazeAction:
        """Convert an action to the simulation's action."""
        values = np.atleast_1d(np.asarray(action["order"]))
        echelon = max(maze_state.echelon, 0)
        largest = self.chain.largest_action[echelon : echelon + self.n_acting]
        return StockMazeAction(tuple(units_of(values, largest, self.chain).tolist()))

    def maze_to_space(self, maze_action: StockMazeAction) -> Action:
        """Convert the simulation's action of all echelons back.

        Raises:
            ValueError: Continuous actions of single echelons cannot be converted back without the echelon.
        """
        amounts = np.array(maze_action.amounts)
        if self.chain.orders == "box":
            largest = self.chain.largest_action
            if self.n_acting < len(largest) and len(set(largest.tolist())) > 1:
                raise ValueError("a continuous order alone does not tell its echelon; use orders='discrete'")
            return {"order": (amounts / largest[: self.n_acting] * 2 - 1).astype(np.float32)}
        return {"order": amounts if self.n_acting > 1 else int(amounts[0])}


def units_of(values: Array, largest: Array, chain: StockChain) -> Array:
    """Units [..., E] int64 of discrete or continuous actions [..., E].

    Args:
        values: Actions.
        largest: [E] largest number of units.
        chain: Description of the chain.
    """
    if chain.orders == "box":
        values = np.rint((values.astype(np.float64) + 1) / 2 * largest)
    units: Array = np.clip(values, 0, largest).astype(np.int64)
    return units
