"""Interface of generators of orders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from maze_pl.envs.cutting_2d.objects import Piece


class DemandGenerator(ABC):
    """Generates orders; holds no state, so that an episode depends on its seed alone."""

    @abstractmethod
    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the next orders, each small enough to be cut out of a raw piece.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            last: The result of the previous call; empty at the start of an episode.
        """


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several pieces that are ordered in a cycle, or a generator."""
