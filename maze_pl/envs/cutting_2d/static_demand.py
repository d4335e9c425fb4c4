"""Generator of the same orders in each period."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import Array


class StaticDemand(DemandGenerator):
    """Repeats the same orders.

    Args:
        pieces: The piece that is always ordered, or several pieces that are ordered in a cycle.
    """

    repeats = True

    def __init__(self, pieces: Piece | Sequence[Piece]) -> None:
        self.pieces: list[Piece] = [(x, y) for x, y in np.reshape(pieces, (-1, 2)).tolist()]

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the cycle."""
        return self.pieces

    def periods(self, raw_piece_size: Piece, streams: RandomStreams, which: Array) -> Array:
        """Return the cycle for each episode."""
        return np.tile(np.array(self.pieces, np.int64), (len(which), 1, 1))
