"""Observations of all echelons together."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.objects import StockMazeState
from maze_pl.envs.structured_env import Array, Observation

N_FEATURES = 4
"""Features of an echelon, without what is in transit: stock, owed, owed by the supplier, inventory position."""


class ObservationConversion(ObservationConversionInterface):
    """Observations of the flat form; units are divided by the mean demand of a period.

    Args:
        chain: Description of the chain.
    """

    def __init__(self, chain: StockChain) -> None:
        self.chain = chain

    def space(self) -> spaces.Dict:
        """Space of `echelons` [E, 4 + K], `demand` [H] (without history: absent), `season` [2] (if there is one).

        All are float32.
        """
        chain = self.chain
        n_slots = max(int(chain.lead.max()) - 1, 1)
        parts: dict[str, spaces.Space[Any]] = {
            "echelons": spaces.Box(-np.inf, np.inf, (chain.n_echelons, N_FEATURES + n_slots))
        }
        return spaces.Dict({**parts, **demand_spaces(chain)})

    def maze_to_space(self, maze_state: StockMazeState) -> Observation:
        """Observation of a state."""
        batch = chain_observation(
            self.chain,
            maze_state.stock[np.newaxis],
            maze_state.owed[np.newaxis],
            maze_state.transit[np.newaxis],
            maze_state.received[np.newaxis],
            np.array([maze_state.period]),
        )
        return {name: array[0] for name, array in batch.items()}


def demand_spaces(chain: StockChain) -> dict[str, spaces.Box]:
    """Spaces of `demand` [H], if there is a history, and of `season` [2], if there is one.

    Args:
        chain: Description of the chain.
    """
    parts: dict[str, spaces.Box] = {}
    if chain.history:
        parts["demand"] = spaces.Box(0, np.inf, (chain.history,))
    if chain.demand.season > 1:
        parts["season"] = spaces.Box(-1, 1, (2,))
    return parts


def features(chain: StockChain, stock: Array, owed: Array, transit: Array) -> Array:
    """Features [N, E, 4 + K] float32 of each echelon.

    Args:
        chain: Description of the chain.
        stock: [N, E] units in stock.
        owed: [N, E] units that each echelon owes.
        transit: [N, E, K] units on their way.
    """
    outstanding = np.zeros_like(owed)
    outstanding[:, :-1] = owed[:, 1:]
    position = stock + transit.sum(axis=2) - owed + outstanding
    columns = np.stack([stock, owed, outstanding, position], axis=2)
    return (np.concatenate([columns, transit], axis=2) / chain.demand.mean).astype(np.float32)


def chain_observation(
    chain: StockChain, stock: Array, owed: Array, transit: Array, received: Array, periods: Array
) -> dict[str, Array]:
    """Observations of the flat form in N chains; see `ObservationConversion.space`.

    Args:
        chain: Description of the chain.
        stock: [N, E] units in stock.
        owed: [N, E] units that each echelon owes.
        transit: [N, E, K] units on their way.
        received: [N, E, H] last demands of each echelon.
        periods: [N] complete periods.
    """
    observation = {"echelons": features(chain, stock, owed, transit)}
    if chain.history:
        observation["demand"] = (received[:, 0] / chain.demand.mean).astype(np.float32)
    if chain.demand.season > 1:
        observation["season"] = season(chain, periods)
    return observation


def season(chain: StockChain, periods: Array) -> Array:
    """Place in the season [N, 2] float32: sine and cosine.

    Args:
        chain: Description of the chain.
        periods: [N] complete periods.
    """
    angle = 2 * np.pi * (periods % chain.demand.season) / chain.demand.season
    return np.stack([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
