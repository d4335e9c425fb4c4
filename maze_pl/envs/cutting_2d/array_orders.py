"""The orders of many episodes in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.objects import Piece, refuse_orders
from maze_pl.envs.structured_env import Array


class ArrayOrders:
    """The current order of each of N episodes, drawn as the sequential environment draws them.

    Args:
        n_envs: Number of environments.
        demand: Generator of orders.
        raw_piece_size: Size of a raw piece.

    Attributes:
        current: [N, 2] float32, the current orders.
    """

    def __init__(self, n_envs: int, demand: DemandGenerator, raw_piece_size: Piece) -> None:
        self.demand, self.raw_piece_size = demand, raw_piece_size
        self.current = np.zeros((n_envs, 2), np.float32)
        self._streams = RandomStreams(np.zeros(n_envs, np.int64))
        self._orders: Array | None = None  # [N, L, 2]
        self._index = np.zeros(n_envs, np.int64)

    def reset(self, which: Array, seeds: Array) -> None:
        """Start episodes with their first orders."""
        self._streams.seed(seeds, which)
        self._draw(which)
        self._show(which)

    def advance(self, which: Array) -> None:
        """Move on to the next order of some episodes."""
        assert self._orders is not None
        index = self._index[which] + 1
        is_over = index == self._orders.shape[1]
        index[is_over] = 0
        self._index[which] = index
        if not self.demand.repeats and is_over.any():
            self._draw(which[is_over])
        self._show(which)

    def _draw(self, which: Array) -> None:
        """Draw the next period of some episodes."""
        orders = self.demand.periods(self.raw_piece_size, self._streams, which)
        self._check(orders)
        if self._orders is None:
            self._orders = np.zeros((len(self._index), *orders.shape[1:]), np.int64)
        self._orders[which] = orders
        self._index[which] = 0

    def reseed(self, which: Array, seeds: Array, n_seen: Array) -> None:
        """Draw again the orders that were drawn already but not seen; see `Cutting2DCoreEnvironment.reseed`.

        Args:
            which: [n] numbers of the episodes.
            seeds: [n] seeds.
            n_seen: [n] number of orders that were seen since the start of each episode.
        """
        assert self._orders is not None
        self._streams.seed(seeds, which)
        others = self.demand.periods(self.raw_piece_size, self._streams, which)
        n_known = n_seen if self.demand.repeats else self._index[which] + 1
        is_known = np.arange(self._orders.shape[1]) < n_known[:, np.newaxis]
        self._orders[which] = np.where(is_known[..., np.newaxis], self._orders[which], others)

    def _check(self, orders: Array) -> None:
        """Refuse orders that cannot be cut out of a raw piece."""
        shortest, longest = orders.min(axis=2), orders.max(axis=2)
        is_wrong = (shortest < 1) | (shortest > min(self.raw_piece_size)) | (longest > max(self.raw_piece_size))
        wrong = np.flatnonzero(is_wrong.any(axis=1))
        if len(wrong) or not orders.shape[1]:
            first = wrong[:1]
            refuse_orders([(x, y) for x, y in orders[first][is_wrong[first]].tolist()], self.raw_piece_size)

    def _show(self, which: Array) -> None:
        assert self._orders is not None
        self.current[which] = self._orders[which, self._index[which]]

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays [N, ...]."""
        orders = np.zeros((len(self._index), 0, 2), np.int64) if self._orders is None else self._orders.copy()
        return {"orders": orders, "index": self._index.copy(), "streams": self._streams.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        orders = np.array(state["orders"], np.int64)
        self._orders = orders if orders.shape[1] else None
        self._index = np.array(state["index"], np.int64)
        self._streams.load_state_dict(state["streams"])
        if self._orders is not None:
            self._show(np.arange(len(self._index)))
