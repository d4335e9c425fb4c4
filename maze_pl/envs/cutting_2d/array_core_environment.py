"""The cutting simulation for many episodes at once, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.arrays.array_events import ArrayEvent, ArrayEvents
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.array_inventory import LARGEST_EXTENT, ArrayInventory, CutResults
from maze_pl.envs.cutting_2d.array_orders import ArrayOrders
from maze_pl.envs.cutting_2d.core_environment import Cutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.default_reward_aggregator import DefaultRewardAggregator
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.envs.cutting_2d.kpi_calculator import Cutting2dKpiCalculator
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.structured_env import Array
from maze_pl.events.topics import declarations

_CUTTING = declarations(CuttingEvents)
_INVENTORY = declarations(InventoryEvents)


class ArrayCutting2DCoreEnvironment:
    """N cutting simulations, each equal to a `Cutting2DCoreEnvironment`.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders that has an array form.
        reward_aggregator: Computes rewards; `DefaultRewardAggregator()` if None.
        events: Receives the events.

    Raises:
        ValueError: The stock or a raw piece has no size, a raw piece is too large for float32, or
            an order does not fit into a raw piece.
        TypeError: The generator of orders or the aggregator has no array form.

    Attributes:
        stock: The stocks.
        orders: The current orders.
        env_time: [N] int64, environment steps of the running episodes.
        kpi_names: Names of the KPIs.
    """

    stock: ArrayInventory
    orders: ArrayOrders
    env_time: Array
    kpi_names = Cutting2dKpiCalculator.kpi_names

    def __init__(
        self,
        max_pieces_in_inventory: int,
        raw_piece_size: Piece,
        static_demand: Demand,
        reward_aggregator: RewardAggregatorInterface | None,
        events: ArrayEvents,
    ) -> None:
        # Makes all checks, and says what is wrong in the same words.
        single = Cutting2DCoreEnvironment(max_pieces_in_inventory, raw_piece_size, static_demand)
        self.max_pieces_in_inventory = max_pieces_in_inventory
        self.raw_piece_size = single.raw_piece_size
        self.demand = single.demand
        if max(self.raw_piece_size) > LARGEST_EXTENT:
            raise ValueError(f"raw_piece_size={raw_piece_size} must be at most {LARGEST_EXTENT}: arrays hold float32")
        self.reward_aggregator: Any = _with_array_form(reward_aggregator or DefaultRewardAggregator())
        self._cutting_events = events.create_event_topic(CuttingEvents)
        self._inventory_events: Any = events.create_event_topic(InventoryEvents)
        self._topics: dict[type, Any] = {CuttingEvents: self._cutting_events, InventoryEvents: self._inventory_events}
        self._raw = np.array(self.raw_piece_size, np.float32)

    def allocate(self, n_envs: int) -> None:
        """Make the arrays of N episodes."""
        self.stock = ArrayInventory(n_envs, self.max_pieces_in_inventory, self.raw_piece_size)
        self.orders = ArrayOrders(n_envs, self.demand, self.raw_piece_size)
        self.env_time = np.zeros(n_envs, np.int64)
        self._n_raw_pieces = np.zeros(n_envs, np.int64)
        self._n_served = np.zeros(n_envs, np.int64)

    def reset(self, which: Array, seeds: Array) -> None:
        """Start episodes with one raw piece in stock; it counts in the first step.

        Args:
            which: [n] numbers of the episodes.
            seeds: [n] seeds that random orders are drawn with.
        """
        self.orders.reset(which, seeds)
        self.stock.reset(which)
        self.env_time[which] = 0
        self._n_raw_pieces[which] = 1
        self._n_served[which] = 0
        self._inventory_events.piece_replenished(which)

    def step(self, which: Array, piece_ids: Array, rotate: Array, reverse: Array) -> Array:
        """Try to cut the current orders, then move on to the next ones.

        Args:
            which: [n] numbers of the episodes.
            piece_ids: [n] positions of the pieces in stock.
            rotate: [n] bool, whether the order is rotated by 90 degrees.
            reverse: [n] bool, whether the first cut sets the order's extent in y instead of in x.

        Returns:
            Rewards [N], of which those of `which` are valid.
        """
        orders = self.orders.current[which]
        cut = self.stock.cut(which, piece_ids, rotate, reverse, orders)
        events = self._events(which, orders, cut)
        for event in events:
            topic = self._topics[event.declaration.topic]
            getattr(topic, event.declaration.name)(event.which, **event.attributes)
        first = which[self.env_time[which] == 0]
        if len(first):  # the reset's event counts in the first step
            events.append(ArrayEvent(_INVENTORY["piece_replenished"], first, {}))
        rewards: Array = self.reward_aggregator.summarize_rewards(events, len(self.env_time))
        self.env_time[which] += 1
        self._n_raw_pieces[which] += cut.is_replenished
        self._n_served[which] += cut.is_cut
        self.orders.advance(which)
        return rewards

    def reseed(self, which: Array, seeds: Array) -> None:
        """Draw again the orders that no agent can know; see `ReseededArrays`."""
        self.orders.reseed(which, seeds, self.env_time[which] + 1)

    def _events(self, which: Array, orders: Array, cut: CutResults) -> list[ArrayEvent]:
        """Events of a step, without those that happened in no episode."""
        events = []
        if not cut.is_piece.all():
            events.append(ArrayEvent(_CUTTING["invalid_piece_selected"], which[~cut.is_piece], {}))
        is_invalid = cut.is_piece & ~cut.is_cut
        if is_invalid.any():
            sizes = self._sizes(orders, cut, is_invalid)
            events.append(ArrayEvent(_CUTTING["invalid_cut"], which[is_invalid], sizes))
        for place in range(int(cut.n_discarded.max(initial=0))):
            has = cut.n_discarded > place
            pieces = {"piece": cut.discarded[has, place]}
            events.append(ArrayEvent(_INVENTORY["piece_discarded"], which[has], pieces))
        if cut.is_cut.any():
            sizes = self._sizes(orders, cut, cut.is_cut)
            served = sizes["current_demand"].astype(np.float64)
            sizes["cutting_area"] = served[:, 0] * served[:, 1]
            events.append(ArrayEvent(_CUTTING["valid_cut"], which[cut.is_cut], sizes))
        if cut.is_replenished.any():
            events.append(ArrayEvent(_INVENTORY["piece_replenished"], which[cut.is_replenished], {}))
        values = {"value": self.stock.sizes[which]}
        events.append(ArrayEvent(_INVENTORY["pieces_in_inventory"], which, values))
        return events

    def _sizes(self, orders: Array, cut: CutResults, chosen: Array) -> dict[str, Array]:
        """Sizes for the events of cuts, [n, 2] each."""
        demand, pieces = orders[chosen], cut.pieces[chosen]
        return {
            "current_demand": demand,
            "piece_to_cut": pieces,
            "raw_piece_size": np.broadcast_to(self._raw, pieces.shape),
        }

    def end_without_fitting_piece(self, which: Array) -> None:
        """Fire the event that an order fits into no piece."""
        self._inventory_events.no_piece_fits(which, current_demand=self.orders.current[which])

    def observation(self) -> dict[str, Array]:
        """Observation of the whole stock and the order, name -> [N, ...]."""
        return {
            "inventory": self.stock.pieces,
            "inventory_size": self.stock.sizes[:, np.newaxis].astype(np.float32),
            "ordered_piece": self.orders.current,
        }

    def kpis(self, which: Array) -> dict[str, Array]:
        """Performance indicators of episodes; see `Cutting2dKpiCalculator`."""
        n_raw_pieces, n_served = self._n_raw_pieces[which], self._n_served[which]
        n_orders = self.env_time[which]
        n_unserved = n_orders - n_served
        return {
            "raw_piece_usage_per_step": n_raw_pieces / n_orders,
            "raw_pieces_per_order_served": (n_raw_pieces + n_unserved) / np.maximum(n_served, 1),
        }

    def maze_state(self, env: int) -> Cutting2DMazeState:
        """Return the state of one episode, as the sequential environment does."""
        pieces = self.stock.pieces[env, : self.stock.sizes[env]].astype(np.int64).tolist()
        width, height = self.orders.current[env].astype(np.int64).tolist()
        inventory = [(x, y) for x, y in pieces]
        return Cutting2DMazeState(inventory, self.max_pieces_in_inventory, (width, height), self.raw_piece_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays [N, ...], by name."""
        state = {f"stock_{name}": array for name, array in self.stock.state_dict().items()}
        state |= {f"orders_{name}": array for name, array in self.orders.state_dict().items()}
        state |= {"env_time": self.env_time.copy(), "n_raw_pieces": self._n_raw_pieces.copy()}
        return {**state, "n_served": self._n_served.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        parts = {"stock": self.stock.load_state_dict, "orders": self.orders.load_state_dict}
        for part, load in parts.items():
            own = {name.removeprefix(f"{part}_"): state[name] for name in state if name.startswith(f"{part}_")}
            load(own)
        self.env_time[:] = state["env_time"]
        self._n_raw_pieces[:] = state["n_raw_pieces"]
        self._n_served[:] = state["n_served"]


def _with_array_form(aggregator: RewardAggregatorInterface) -> RewardAggregatorInterface:
    """Return an aggregator that has `summarize_rewards`, as `DefaultRewardAggregator` does.

    Raises:
        TypeError: It has no such method, or a class derived from the one that has it changes
            `summarize_reward` only.
    """
    kind = type(aggregator)
    if not hasattr(kind, "summarize_rewards") or not is_defined_with(kind, "summarize_rewards", "summarize_reward"):
        remedy = "define summarize_rewards like that of DefaultRewardAggregator"
        raise TypeError(f"{kind.__name__} has no array form; {remedy}, or use the sequential environment")
    return aggregator
