"""The stocks of many episodes in arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import Array

LARGEST_EXTENT = 2**24
"""Extents up to this number are exact in float32."""


class CutResults(NamedTuple):
    """Results of one cut in each of n stocks.

    Attributes:
        is_piece: [n] bool, whether the chosen slot holds a piece.
        is_cut: [n] bool, whether the order was cut out of it.
        is_replenished: [n] bool, whether a raw piece was put in stock.
        pieces: [n, 2] float32, the chosen pieces; 0 for an empty slot.
        n_discarded: [n] int64, number of pieces that were discarded.
        discarded: [n, 3, 2] float32, the discarded pieces in order, filled up with 0.
    """

    is_piece: Array
    is_cut: Array
    is_replenished: Array
    pieces: Array
    n_discarded: Array
    discarded: Array


class ArrayInventory:
    """N stocks that store pieces and cut them, each equal to an `Inventory`.

    Args:
        n_stocks: Number of stocks.
        max_pieces_in_inventory: Maximum number of pieces in a stock.
        raw_piece_size: Size of a raw piece.

    Attributes:
        pieces: [N, max_pieces_in_inventory, 2] float32, the pieces in stock, the oldest first, then
            zeros; a view.
        sizes: [N] int64, number of pieces in stock.
    """

    def __init__(self, n_stocks: int, max_pieces_in_inventory: int, raw_piece_size: Piece) -> None:
        self.max_pieces_in_inventory = max_pieces_in_inventory
        self.raw_piece_size = np.array(raw_piece_size, np.float32)
        # Room for the deleted piece, two leftovers and a raw piece; always 0 between cuts.
        self._room = np.zeros((n_stocks, max_pieces_in_inventory + 3, 2), np.float32)
        self._places = np.arange(max_pieces_in_inventory + 2)
        self.pieces = self._room[:, :max_pieces_in_inventory]
        self.sizes = np.zeros(n_stocks, np.int64)

    def reset(self, which: Array) -> None:
        """Put one raw piece, and nothing else, in some stocks."""
        self._room[which] = 0.0
        self._room[which, 0] = self.raw_piece_size
        self.sizes[which] = 1

    def cut(self, which: Array, piece_ids: Array, rotate: Array, reverse: Array, orders: Array) -> CutResults:
        """Cut an order out of a piece in each of n stocks, and put leftovers and raw pieces in stock.

        Args:
            which: [n] numbers of the stocks, each at most once.
            piece_ids: [n] positions of the pieces in stock.
            rotate: [n] bool, whether the order is rotated by 90 degrees.
            reverse: [n] bool, whether the first cut sets the order's extent in y instead of in x.
            orders: [n, 2] float32, sizes of the orders.
        """
        is_piece = (piece_ids >= 0) & (piece_ids < self.sizes[which])
        pieces = self._room[which, np.where(is_piece, piece_ids, self.max_pieces_in_inventory)]
        turned = np.where(rotate[:, np.newaxis], orders[:, ::-1], orders)
        is_cut = is_piece & (turned <= pieces).all(axis=1)
        n_discarded = np.zeros(len(which), np.int64)
        discarded = np.zeros((len(which), 3, 2), np.float32)
        is_replenished = is_cut & (pieces == self.raw_piece_size).all(axis=1)
        cut = np.flatnonzero(is_cut)
        if len(cut):
            added = _additions(pieces[cut], turned[cut], reverse[cut], is_replenished[cut], self.raw_piece_size)
            n_dropped, dropped = self._replace(which[cut], piece_ids[cut], *added)
            n_discarded[cut] = n_dropped
            discarded[cut] = dropped
        return CutResults(is_piece, is_cut, is_replenished, pieces, n_discarded, discarded)

    def _replace(self, stocks: Array, piece_ids: Array, is_added: Array, added: Array) -> tuple[Array, Array]:
        """Remove a piece from each of n stocks, append up to three, and discard the oldest ones.

        Every piece that is appended to a full stock discards the oldest one, so that together they
        discard all that are too many, from the front.

        Args:
            stocks: [n] numbers of the stocks.
            piece_ids: [n] pieces to remove.
            is_added: [n, 3] which of the pieces to append.
            added: [n, 3, 2] the pieces.

        Returns:
            Number of discarded pieces [n], and the pieces [n, 3, 2].
        """
        room = _packed(self._room)
        before = room[stocks]
        after = np.zeros_like(before)
        is_behind = self._places >= piece_ids[:, np.newaxis]
        after[:, :-1] = np.where(is_behind, before[:, 1:], before[:, :-1])
        lines = np.arange(len(stocks))
        sizes = self.sizes[stocks] - 1
        packed = _packed(added)
        for place in range(3):
            chosen = is_added[:, place]
            after[lines[chosen], sizes[chosen]] = packed[chosen, place]
            sizes += chosen
        n_discarded = np.maximum(sizes - self.max_pieces_in_inventory, 0)
        discarded = np.zeros((len(stocks), 3), after.dtype)
        for n_pieces in range(1, int(n_discarded.max()) + 1):
            full = np.flatnonzero(n_discarded == n_pieces)
            discarded[full, :n_pieces] = after[full, :n_pieces]
            after[full, :-n_pieces] = after[full, n_pieces:]
            after[full, self.max_pieces_in_inventory :] = 0
        self.sizes[stocks] = sizes - n_discarded
        room[stocks] = after
        return n_discarded, discarded.view(np.float32).reshape(len(stocks), 3, 2)

    def state_dict(self) -> dict[str, Array]:
        """Return the stocks as arrays [N, ...]."""
        return {"pieces": self.pieces.copy(), "sizes": self.sizes.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._room[:] = 0.0
        self.pieces[:] = state["pieces"]
        self.sizes[:] = state["sizes"]


def _additions(pieces: Array, orders: Array, reverse: Array, is_raw: Array, raw: Array) -> tuple[Array, Array]:
    """Leftovers of n cuts, in the order of the cuts, and the raw piece; see `inventory.residuals`.

    Returns:
        Which of them exist [n, 3], and the pieces [n, 3, 2].
    """
    left = pieces - orders
    added = np.empty((len(pieces), 3, 2), np.float32)
    added[:, 0, 0] = np.where(reverse, pieces[:, 0], left[:, 0])
    added[:, 0, 1] = np.where(reverse, left[:, 1], pieces[:, 1])
    added[:, 1, 0] = np.where(reverse, left[:, 0], orders[:, 0])
    added[:, 1, 1] = np.where(reverse, orders[:, 1], left[:, 1])
    added[:, 2] = raw
    is_added = (added[..., 0] > 0) & (added[..., 1] > 0)
    is_added[:, 2] = is_raw
    return is_added, added


def _packed(pieces: Array) -> Array:
    """View pieces [..., 2] as one number of 64 bits each, which is moved at once."""
    return pieces.view(np.int64)[..., 0]
