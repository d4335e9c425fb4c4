"""The simulation: orders arrive one at a time, and each is cut out of a piece in stock."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.core_env import CoreEnv, RewardAggregatorInterface, take_over
from maze_pl.envs.cutting_2d.default_reward_aggregator import DefaultRewardAggregator
from maze_pl.envs.cutting_2d.demand import Demand, DemandGenerator
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.envs.cutting_2d.inventory import Inventory
from maze_pl.envs.cutting_2d.kpi_calculator import Cutting2dKpiCalculator
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeAction, Cutting2DMazeState, Piece, fits, refuse_orders
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer
from maze_pl.envs.cutting_2d.static_demand import StaticDemand


class Cutting2DCoreEnvironment(CoreEnv):
    """The online guillotine 2D cutting-stock problem: only the current order is known.

    Each step cuts one order out of a piece in stock by cuts that go straight across, and returns
    the leftovers to the stock. Whenever a raw piece is cut, another one is put in stock. A full
    stock discards its oldest piece. An invalid action changes nothing, but the order is lost. The
    aim is to use as few raw pieces as possible.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders.
        reward_aggregator: Computes rewards; `DefaultRewardAggregator()` if None.

    Raises:
        ValueError: The stock or a raw piece has no size, or an order does not fit into a raw piece.
    """

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: RewardAggregatorInterface | None = None,
    ) -> None:
        super().__init__()
        if min(max_pieces_in_inventory, *raw_piece_size) < 1:
            raise ValueError(f"{max_pieces_in_inventory=} and {raw_piece_size=} must be at least 1")
        self.max_pieces_in_inventory = max_pieces_in_inventory
        self.raw_piece_size = (raw_piece_size[0], raw_piece_size[1])
        self.demand = static_demand if isinstance(static_demand, DemandGenerator) else StaticDemand(static_demand)
        self.demand.check(self.raw_piece_size)
        self.reward_aggregator = reward_aggregator or DefaultRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._cutting_events = self.pubsub.create_event_topic(CuttingEvents)
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)
        self._generator = np.random.default_rng()
        self.reset()  # so that there is a state, and orders that do not fit are refused here

    def reset(self) -> Cutting2DMazeState:
        """Start an episode with one raw piece in stock; it counts in the first step."""
        if self.context.env_time:  # without a `MazeEnv`, which would have begun it
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at, self._order_index = -1, -1
        self._orders: list[Piece] = []
        self._n_known_orders = 0
        self._next_order()
        self.inventory = Inventory(self.max_pieces_in_inventory, self.raw_piece_size, self._inventory_events)
        self.inventory.replenish_piece()
        return self.get_maze_state()

    def _next_order(self) -> None:
        self._order_index += 1
        if self._order_index == len(self._orders):
            last = self._orders
            self._orders = self.demand.period(self.raw_piece_size, self._generator, last)
            self._order_index = 0
            is_repeated = self._orders is last and bool(last)
            self._n_known_orders = len(last) if is_repeated else 0
            if not is_repeated:
                self._check_orders(self._orders)
        self.current_demand = self._orders[self._order_index]

    def _check_orders(self, orders: list[Piece]) -> None:
        """Refuse orders that cannot be cut out of a raw piece."""
        size = self.raw_piece_size
        wrong = [order for order in orders if min(order) < 1 or not fits(order, size)]
        if wrong or not orders:
            refuse_orders(wrong, size)

    def step(self, maze_action: Cutting2DMazeAction) -> tuple[Cutting2DMazeState, float, bool, bool, dict[str, Any]]:
        """Try to cut the current order, then move on to the next one.

        Returns:
            State, reward, terminated and truncated (both always False), and info that names the
            outcome of the action.
        """
        if self.context.env_time == self._stepped_at:  # without a `MazeEnv`, which would keep time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        index = maze_action.piece_id
        order, inventory = self.current_demand, self.inventory
        piece = inventory.pieces[index] if 0 <= index < len(inventory.pieces) else None
        if piece is None:
            info = {"error": "piece_id_out_of_bounds"}
            self._cutting_events.invalid_piece_selected()
        elif not inventory.cut(maze_action, order):
            info = {"error": "invalid_cut"}
            self._cutting_events.invalid_cut(order, piece, self.raw_piece_size)
        else:
            info = {"msg": "valid_cut"}
            self._cutting_events.valid_cut(order, piece, self.raw_piece_size, float(order[0] * order[1]))
            if piece == self.raw_piece_size:
                inventory.replenish_piece()
        self._inventory_events.pieces_in_inventory(inventory.size())
        self._next_order()
        maze_state = self.get_maze_state()
        return maze_state, self.reward_aggregator.summarize_reward(maze_state), False, False, info

    def get_maze_state(self) -> Cutting2DMazeState:
        """Return a copy of the stock, and the current order."""
        pieces = self.inventory.pieces.copy()
        return Cutting2DMazeState(pieces, self.max_pieces_in_inventory, self.current_demand, self.raw_piece_size)

    def seed(self, seed: int) -> None:
        """Seed the generator that random orders are drawn with."""
        self._generator = np.random.default_rng(seed)

    def reseed(self, seed: int) -> None:
        """Seed the generator, and draw again the orders that were drawn already but not seen."""
        self.seed(seed)
        n_known = max(self._n_known_orders, self._order_index + 1)
        if n_known < len(self._orders):
            self._orders = self.demand.redraw(self.raw_piece_size, self._generator, self._orders, n_known)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> Cutting2DRenderer:
        """Return the renderer of the chosen piece, its cuts and the stock."""
        return Cutting2DRenderer()

    def get_kpi_calculator(self) -> Cutting2dKpiCalculator:
        """Return the calculator of raw piece usage."""
        return Cutting2dKpiCalculator()
