"""Observations of single echelons."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.objects import StockMazeState
from maze_pl.envs.multi_echelon_stock.observation_conversion import (
    N_FEATURES,
    demand_spaces,
    features,
    season,
)
from maze_pl.envs.structured_env import Array, Observation


class EchelonObservationConversion(ObservationConversionInterface):
    """Observations of the structured form: an echelon sees its own stock, pipeline, demand and costs.

    Args:
        chain: Description of the chain.
    """

    def __init__(self, chain: StockChain) -> None:
        self.chain = chain

    def space(self) -> spaces.Dict:
        """Space of the observations, all float32.

        - `own` [5 + K]: stock, owed, owed by the supplier, inventory position, transit, and the order
          that the echelon below has placed in this period, in units of the mean demand.
        - `demand` [H]: last demands: of customers, or orders of the echelon below (absent without history).
        - `place` [E]: 1 at the echelon, 0 elsewhere (absent with a single echelon, as are its costs).
        - `costs` [4]: costs of holding, backlog, an order (per unit of mean demand) and of a lost
          sale, divided by the largest of all holding costs, or by 1.
        - `season` [2]: sine and cosine (if there is a season).
        """
        chain = self.chain
        n_slots = max(int(chain.lead.max()) - 1, 1)
        parts: dict[str, spaces.Space[Any]] = {
            "own": spaces.Box(-np.inf, np.inf, (N_FEATURES + n_slots + 1,)),
        }
        if chain.n_echelons > 1:
            parts["place"] = spaces.Box(0, 1, (chain.n_echelons,))
            parts["costs"] = spaces.Box(0, np.inf, (4,))
        return spaces.Dict({**parts, **demand_spaces(chain)})

    def maze_to_space(self, maze_state: StockMazeState) -> Observation:
        """Observation of the echelon that acts next."""
        batch = echelon_observation(
            self.chain,
            maze_state.stock[np.newaxis],
            maze_state.owed[np.newaxis],
            maze_state.transit[np.newaxis],
            maze_state.received[np.newaxis],
            maze_state.orders[np.newaxis],
            np.array([maze_state.period]),
            np.array([max(maze_state.echelon, 0)]),
        )
        return {name: array[0] for name, array in batch.items()}


def echelon_observation(
    chain: StockChain,
    stock: Array,
    owed: Array,
    transit: Array,
    received: Array,
    orders: Array,
    periods: Array,
    echelons: Array,
) -> dict[str, Array]:
    """Observations of one echelon in each of N chains; see `EchelonObservationConversion.space`.

    Args:
        chain: Description of the chain.
        stock: [N, E] units in stock.
        owed: [N, E] units that each echelon owes.
        transit: [N, E, K] units on their way.
        received: [N, E, H] last demands of each echelon.
        orders: [N, E] orders of this period.
        periods: [N] complete periods.
        echelons: [N] the echelon.
    """
    rows = np.arange(len(stock))
    below = np.where(echelons > 0, orders[rows, echelons - 1], 0)
    incoming = (below / chain.demand.mean).astype(np.float32)
    own = features(chain, stock, owed, transit)[rows, echelons]
    observation = {"own": np.concatenate([own, incoming[:, np.newaxis]], axis=1)}
    if chain.n_echelons > 1:
        observation["place"] = np.eye(chain.n_echelons, dtype=np.float32)[echelons]
        observation["costs"] = _costs(chain)[echelons]
    if chain.history:
        observation["demand"] = (received[rows, echelons] / chain.demand.mean).astype(np.float32)
    if chain.demand.season > 1:
        observation["season"] = season(chain, periods)
    return observation


def _costs(chain: StockChain) -> Array:
    """Costs [E, 4] float32 of each echelon, relative to the largest holding cost."""
    unit = float(chain.holding.max()) or 1.0
    costs = np.zeros((chain.n_echelons, 4))
    costs[:, 0] = chain.holding
    costs[:, 1] = chain.backlog
    costs[:, 2] = chain.fixed / chain.demand.mean
    costs[0, 3] = chain.lost_sale_cost
    return (costs / unit).astype(np.float32)
