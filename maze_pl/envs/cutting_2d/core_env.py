"""The cutting problem as a simulation: orders come in one by one, and each is cut out of a piece in stock."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.envs.core_env import CoreEnv, take_over
from maze_pl.envs.cutting_2d import events
from maze_pl.envs.cutting_2d.demand import Demand, DemandGenerator, Piece, StaticDemand, fits
from maze_pl.envs.cutting_2d.events import InventoryEvents
from maze_pl.envs.cutting_2d.renderer import Cutting2DRenderer
from maze_pl.envs.reward import RewardAggregatorInterface


@dataclass(frozen=True, slots=True)
class Cutting2DMazeAction:
    """Which piece is cut, and how.

    Attributes:
        piece_id: Position of the piece in stock.
        rotate: Whether the order is turned by 90 degrees.
        reverse_cutting_order: Whether the first cut gives the order's extent in y, instead of the one in x.
    """

    piece_id: int
    rotate: bool
    reverse_cutting_order: bool


@dataclass(frozen=True, slots=True)
class Cutting2DMazeState:
    """What there is, and what is wanted.

    Attributes:
        inventory: Pieces in stock, the oldest first.
        max_pieces_in_inventory: How many there can be.
        current_demand: The order that the next step is to serve.
        raw_piece_size: Size of a raw piece.
    """

    inventory: list[Piece]
    max_pieces_in_inventory: int
    current_demand: Piece
    raw_piece_size: Piece


class Inventory:
    """Keeps pieces and cuts them.

    Args:
        max_pieces_in_inventory: How many pieces there is room for; where there is none left, the oldest is discarded.
        raw_piece_size: Size of a raw piece.
        inventory_events: Through which events are fired.

    Attributes:
        pieces: The pieces in stock, the oldest first.
    """

    def __init__(self, max_pieces_in_inventory: int, raw_piece_size: Piece, inventory_events: InventoryEvents) -> None:
        self.max_pieces_in_inventory, self.raw_piece_size = max_pieces_in_inventory, raw_piece_size
        self.inventory_events = inventory_events
        self.pieces: list[Piece] = []

    def size(self) -> int:
        """Number of pieces in stock."""
        return len(self.pieces)

    def is_full(self) -> bool:
        """Whether there is no room left."""
        return len(self.pieces) == self.max_pieces_in_inventory

    def store_piece(self, piece: Piece) -> None:
        """Add a piece, which takes the place of the oldest one where there is no room left."""
        if self.is_full():
            self.inventory_events.piece_discarded(self.pieces.pop(0))
        self.pieces.append(piece)

    def replenish_piece(self) -> None:
        """Add a raw piece."""
        self.store_piece(self.raw_piece_size)
        self.inventory_events.piece_replenished()

    def cut(self, maze_action: Cutting2DMazeAction, ordered_piece: Piece) -> bool:
        """Cut an order out of a piece, and put in stock what is left of it.

        Args:
            maze_action: The piece and the cuts.
            ordered_piece: Size of the order.

        Returns:
            Whether that was possible; nothing has changed if not.
        """
        if not 0 <= maze_action.piece_id < len(self.pieces):
            return False
        (x, y), order = self.pieces[maze_action.piece_id], ordered_piece[::-1] if maze_action.rotate else ordered_piece
        if order[0] > x or order[1] > y:
            return False
        del self.pieces[maze_action.piece_id]
        for residual in residuals((x, y), order, maze_action.reverse_cutting_order):
            if residual[0] and residual[1]:
                self.store_piece(residual)
        return True


def residuals(piece: Piece, order: Piece, reverse_cutting_order: bool) -> tuple[Piece, Piece]:
    """What the two cuts leave of a piece beside the order, in the order of the cuts; a side is 0 if nothing is left.

    The first cut goes right across the piece and gives the order's extent in x, or in y if the cutting order is
    reversed; the second one cuts off what that part has too much in the other direction.
    """
    (x, y), (width, height) = piece, order
    if reverse_cutting_order:
        return (x, y - height), (x - width, height)
    return (x - width, y), (width, y - height)


class Cutting2DCoreEnvironment(CoreEnv):
    """The guillotine 2D cutting-stock problem, online: only the current order is known.

    In each step one order is cut out of a piece in stock, by cuts that go right across, and what is left goes back.
    Whenever a raw piece is cut, another one comes into stock. A stock that is full discards its oldest piece. An action
    that cannot be done changes nothing, but the order is lost all the same. Best is who needs the fewest raw pieces.

    Args:
        max_pieces_in_inventory: How many pieces there is room for.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several that follow one another in a cycle, or a generator of
            other orders.
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
        self.reward_aggregator = reward_aggregator or events.DefaultRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._cutting_events = self.pubsub.create_event_topic(events.CuttingEvents)
        self._inventory_events = self.pubsub.create_event_topic(InventoryEvents)
        self._generator = np.random.default_rng()
        self.reset()  # so that there is a state, and that orders which do not fit are found at once

    def reset(self) -> Cutting2DMazeState:
        """Start an episode with one raw piece in stock; it counts in the first step."""
        if self.context.env_time:  # reset without a `MazeEnv` around, which would have begun the episode
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at, self._order_index = -1, -1
        self._orders: list[Piece] = []
        self._next_order()
        self.inventory = Inventory(self.max_pieces_in_inventory, self.raw_piece_size, self._inventory_events)
        self.inventory.replenish_piece()
        return self.get_maze_state()

    def _next_order(self) -> None:
        self._order_index += 1
        if self._order_index == len(self._orders):
            size, last = self.raw_piece_size, self._orders
            self._orders, self._order_index = self.demand.period(size, self._generator, last), 0
            wrong = [o for o in self._orders if min(o) < 1 or not fits(o, size)] if self._orders is not last else []
            if wrong or not self._orders:
                raise ValueError(f"there must be orders that fit into raw pieces of size {size}: got {wrong or 'none'}")
        self.current_demand = self._orders[self._order_index]

    def step(self, maze_action: Cutting2DMazeAction) -> tuple[Cutting2DMazeState, float, bool, bool, dict[str, Any]]:
        """Try to cut the current order, and take the next one.

        Returns:
            State, reward, terminated and truncated (never here), and in words what came of the action.
        """
        if self.context.env_time == self._stepped_at:  # stepped without a `MazeEnv` around, which would keep the time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        index, order, inventory = maze_action.piece_id, self.current_demand, self.inventory
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
        """The stock, as a list of its own, and the current order."""
        pieces = self.inventory.pieces.copy()
        return Cutting2DMazeState(pieces, self.max_pieces_in_inventory, self.current_demand, self.raw_piece_size)

    def seed(self, seed: int) -> None:
        """Set what random orders are drawn with."""
        self._generator = np.random.default_rng(seed)

    def close(self) -> None:
        """Nothing is held that would have to be released."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> Cutting2DRenderer:
        """What draws the chosen piece, its cuts and the stock."""
        return Cutting2DRenderer()

    def get_kpi_calculator(self) -> events.Cutting2dKpiCalculator:
        """What computes the use of raw pieces."""
        return events.Cutting2dKpiCalculator()
