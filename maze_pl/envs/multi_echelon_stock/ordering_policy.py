"""Base of policies that order by a rule for each echelon."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep
from maze_pl.core.rule_heads import RuleHeads
from maze_pl.envs.multi_echelon_stock.action_conversion import ActionConversion
from maze_pl.envs.multi_echelon_stock.chain import StockChain
from maze_pl.envs.multi_echelon_stock.simulation import ChainState
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    import torch


class OrderingPolicy(MazeStatePolicy):
    """Orders by the inventory position of each echelon, in the flat and in the structured form.

    From echelon 0 upwards; a position already counts the order that was just received from below.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        self._heads = RuleHeads(action_spaces_dict)

    @abstractmethod
    def order(self, chain: StockChain, echelon: int, position: Array, received: Array) -> Array:
        """Return orders [N] of an echelon, in units; what is below 0 counts as 0.

        Args:
            chain: Description of the chain.
            echelon: The echelon.
            position: [N] inventory positions.
            received: [N, H] last demands of the echelon.
        """

    def quantities(
        self, chain: StockChain, state: ChainState, received: Array, placed: Array | None = None
    ) -> tuple[Array, Array]:
        """Return orders and levels of all echelons.

        Args:
            chain: Description of the chain.
            state: N chains.
            received: [N, E, H] last demands of each echelon.
            placed: [N, E] int64 orders that were placed in this period already, -1 where the rule
                orders; None if it orders for all echelons.

        Returns:
            Orders [N, E] int64, and the inventory positions [N, E] int64 that they aim at, which
            are lower than the present ones where there is too much.
        """
        positions = state.positions()
        orders = np.zeros_like(positions)
        levels = np.zeros_like(positions)
        for echelon in range(chain.n_echelons):
            if echelon:
                positions[:, echelon] -= orders[:, echelon - 1]
            position = positions[:, echelon]
            wanted = self.order(chain, echelon, position, received[:, echelon]).astype(np.int64)
            wanted = np.minimum(wanted, chain.capacity[echelon] - position)
            orders[:, echelon] = np.clip(wanted, 0, chain.most_ordered[echelon])
            if placed is not None:
                orders[:, echelon] = np.where(placed[:, echelon] < 0, orders[:, echelon], placed[:, echelon])
            levels[:, echelon] = position + wanted
        return orders, levels

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Order for the echelons that act.

        Raises:
            ValueError: The batch has no states of the simulation, or actions are not orders.
        """
        states = self.states_of(batch)
        chain = states[0].chain
        n_acting = 1 if states[0].echelon >= 0 else chain.n_echelons
        heads = self._heads.of(self, batch.step_key, lambda _: ActionConversion(chain, n_acting).space().spaces)
        stocks = ChainState(
            np.stack([state.stock for state in states]),
            np.stack([state.owed for state in states]),
            np.stack([state.transit for state in states]),
        )
        echelons = np.array([state.echelon for state in states]) % chain.n_echelons
        placed = None
        if states[0].echelon >= 0:
            is_placed = np.arange(chain.n_echelons) < echelons[:, np.newaxis]
            placed = np.where(is_placed, np.stack([state.orders for state in states]), -1)
        orders, levels = self.quantities(chain, stocks, np.stack([state.received for state in states]), placed)
        amounts = np.clip(levels if chain.target == "level" else orders, 0, chain.largest_action)
        largest = np.broadcast_to(chain.largest_action, amounts.shape)
        space = heads["order"]
        if states[0].echelon >= 0:
            rows = np.arange(len(states))
            amounts = amounts[rows, echelons, np.newaxis]
            largest = largest[rows, echelons, np.newaxis]
        if isinstance(space, spaces.Box):
            return PolicyStep({"order": (2 * amounts / largest - 1).astype(np.float32)})
        return PolicyStep({"order": amounts[:, 0] if isinstance(space, spaces.Discrete) else amounts})
