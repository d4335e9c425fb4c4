"""Generators of orders."""

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


class StaticDemand(DemandGenerator):
    """Repeats the same orders.

    Args:
        pieces: The piece that is always ordered, or several pieces that are ordered in a cycle.
    """

    def __init__(self, pieces: Piece | Sequence[Piece]) -> None:
        self.pieces: list[Piece] = [(x, y) for x, y in np.reshape(pieces, (-1, 2)).tolist()]

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the cycle."""
        return self.pieces


class MixedPeriodicDemand(DemandGenerator):
    """Repeats orders that together fill raw pieces exactly, drawn once for each episode.

    Raw pieces are cut at random, straight across and at integer positions, until there are enough
    pieces.

    Args:
        n_raw_pieces: Number of raw pieces to cut.
        m_demanded_pieces: Number of pieces to cut them into, which is the length of the period.
        rotate: Whether to rotate each piece by 90 degrees with probability one half.
    """

    def __init__(self, n_raw_pieces: int, m_demanded_pieces: int, rotate: bool = False) -> None:
        self.n_raw_pieces = n_raw_pieces
        self.m_demanded_pieces = m_demanded_pieces
        self.rotate = rotate

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the pieces, shuffled.

        Raises:
            ValueError: The raw pieces cannot be cut into that many pieces.
        """
        most = self.n_raw_pieces * raw_piece_size[0] * raw_piece_size[1]
        if not 1 <= self.n_raw_pieces <= self.m_demanded_pieces <= most:
            wrong = f"n_raw_pieces={self.n_raw_pieces} of size {raw_piece_size} cannot be cut into "
            raise ValueError(f"{wrong}m_demanded_pieces={self.m_demanded_pieces}; give at least 1 for at most {most}")
        pieces = [raw_piece_size] * self.n_raw_pieces
        while not last and len(pieces) < self.m_demanded_pieces:
            index, axis = int(generator.integers(len(pieces))), int(generator.integers(2))
            x, y = pieces[index]
            cut = int(generator.integers(pieces[index][axis]))
            if cut:  # 0 would leave the piece whole; try again
                pieces[index : index + 1] = [(x, cut), (x, y - cut)] if axis else [(cut, y), (x - cut, y)]
        generator.shuffle(pieces)
        return last or [piece[::-1] if self.rotate and generator.random() < 0.5 else piece for piece in pieces]


class UniformDemand(DemandGenerator):
    """Draws independent orders with integer sides uniform from 1 to `max_size`.

    Args:
        max_size: Largest extent in x and in y.
    """

    def __init__(self, max_size: Piece) -> None:
        if min(max_size) < 1:
            raise ValueError(f"max_size={max_size} must be at least 1 in both directions")
        self.max_size = max_size

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return 128 orders, as drawing many at once is much faster than one at a time."""
        return [(x, y) for x, y in generator.integers(1, self.max_size, (128, 2), endpoint=True).tolist()]


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several pieces that are ordered in a cycle, or a generator."""
