"""Generator of independent orders of random size."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.objects import Piece, fits
from maze_pl.envs.structured_env import Array


class UniformDemand(DemandGenerator):
    """Draws independent orders with integer sides uniform from 1 to `max_size`.

    Args:
        max_size: Largest extent in x and in y.
    """

    def __init__(self, max_size: Piece) -> None:
        if min(max_size) < 1:
            raise ValueError(f"max_size={max_size} must be at least 1 in both directions")
        self.max_size = max_size

    def check(self, raw_piece_size: Piece) -> None:
        """Refuse a largest order that cannot be cut out of a raw piece.

        Raises:
            ValueError: It cannot.
        """
        if not fits(self.max_size, raw_piece_size):
            came = (
                f"max_size={tuple(self.max_size)} of UniformDemand is larger than raw pieces of size {raw_piece_size}"
            )
            raise ValueError(f"{came}: orders must fit into them, rotated or not")

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return 128 orders, as drawing many at once is much faster than one at a time."""
        return [(x, y) for x, y in generator.integers(1, self.max_size, (128, 2), endpoint=True).tolist()]

    def periods(self, raw_piece_size: Piece, streams: RandomStreams, which: Array) -> Array:
        """Return 128 orders for each episode."""
        return streams.integers_within(np.ones(2, np.int64), np.array(self.max_size) + 1, 128, which)
