"""What customers order: the same piece, a cycle of pieces, what raw pieces can be cut into, or anything at random."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

Piece = tuple[int, int]
"""Extent in x and in y."""


class DemandGenerator(ABC):
    """Says what is ordered; keeps nothing of its own, so that an episode depends on its seed alone."""

    @abstractmethod
    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Orders that follow one another next, each of them small enough for a raw piece.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            last: The orders before them, as this method returned them; empty at the start of an episode.
        """


class StaticDemand(DemandGenerator):
    """The same orders again and again.

    Args:
        pieces: The piece that is always ordered, or several that follow one another in a cycle.
    """

    def __init__(self, pieces: Piece | Sequence[Piece]) -> None:
        self.pieces: list[Piece] = [(x, y) for x, y in np.reshape(pieces, (-1, 2)).tolist()]

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """The cycle."""
        return self.pieces


class MixedPeriodicDemand(DemandGenerator):
    """Orders that together fill raw pieces exactly, drawn anew for each episode and repeated in it again and again.

    Raw pieces are cut at random, right across and at whole numbers, until there are enough pieces.

    Args:
        n_raw_pieces: How many raw pieces are cut.
        m_demanded_pieces: How many pieces they become, which is the length of the period.
        rotate: Whether each piece is turned by 90 degrees with probability one half.
    """

    def __init__(self, n_raw_pieces: int, m_demanded_pieces: int, rotate: bool = False) -> None:
        self.n_raw_pieces, self.m_demanded_pieces, self.rotate = n_raw_pieces, m_demanded_pieces, rotate

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """The pieces, shuffled.

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
            if cut:  # 0 leaves the piece whole, and another one is tried
                pieces[index : index + 1] = [(x, cut), (x, y - cut)] if axis else [(cut, y), (x - cut, y)]
        generator.shuffle(pieces)
        return last or [piece[::-1] if self.rotate and generator.random() < 0.5 else piece for piece in pieces]


class UniformDemand(DemandGenerator):
    """Orders with sides drawn uniformly from 1 up to the largest, each order independent of the others.

    Args:
        max_size: Largest extent in x and in y.
    """

    def __init__(self, max_size: Piece) -> None:
        if min(max_size) < 1:
            raise ValueError(f"max_size={max_size} must be at least 1 in both directions")
        self.max_size = max_size

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Some orders: many at a time are drawn much faster than one by one."""
        return [(x, y) for x, y in generator.integers(1, self.max_size, (128, 2), endpoint=True).tolist()]


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several that follow one another in a cycle, or what generates orders."""


def fits(order: Piece, piece: Piece) -> bool:
    """Whether an order can be cut out of a piece, turned or not."""
    return min(order) <= min(piece) and max(order) <= max(piece)
