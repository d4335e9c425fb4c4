"""Generator of orders that together fill raw pieces exactly."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.cutting_2d.demand import DemandGenerator
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import Array


class MixedPeriodicDemand(DemandGenerator):
    """Repeats orders that together fill raw pieces exactly, drawn once for each episode.

    Raw pieces are cut at random, straight across and at integer positions, until there are enough
    pieces.

    Args:
        n_raw_pieces: Number of raw pieces to cut.
        m_demanded_pieces: Number of pieces to cut them into, which is the length of the period.
        rotate: Whether to rotate each piece by 90 degrees with probability one half.
    """

    repeats = True

    def __init__(self, n_raw_pieces: int, m_demanded_pieces: int, rotate: bool = False) -> None:
        self.n_raw_pieces = n_raw_pieces
        self.m_demanded_pieces = m_demanded_pieces
        self.rotate = rotate

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the pieces, shuffled.

        Raises:
            ValueError: The raw pieces cannot be cut into that many pieces.
        """
        self.check(raw_piece_size)
        pieces = [raw_piece_size] * self.n_raw_pieces
        while not last and len(pieces) < self.m_demanded_pieces:
            index, axis = int(generator.integers(len(pieces))), int(generator.integers(2))
            x, y = pieces[index]
            cut = int(generator.integers(pieces[index][axis]))
            if cut:  # 0 would leave the piece whole; try again
                pieces[index : index + 1] = [(x, cut), (x, y - cut)] if axis else [(cut, y), (x - cut, y)]
        generator.shuffle(pieces)
        return last or [piece[::-1] if self.rotate and generator.random() < 0.5 else piece for piece in pieces]

    def periods(self, raw_piece_size: Piece, streams: RandomStreams, which: Array) -> Array:
        """Return the pieces of each episode, shuffled."""
        self.check(raw_piece_size)
        pieces = self._cut(raw_piece_size, streams, which)
        streams.shuffle(pieces, which)
        if not self.rotate:
            return pieces
        is_turned = streams.random(self.m_demanded_pieces, which) < 0.5
        return np.where(is_turned[..., np.newaxis], pieces[..., ::-1], pieces)

    def check(self, raw_piece_size: Piece) -> None:
        """Refuse numbers of pieces that raw pieces cannot be cut into.

        Raises:
            ValueError: Raw pieces of this size cannot be cut into that many pieces.
        """
        most = self.n_raw_pieces * raw_piece_size[0] * raw_piece_size[1]
        if not 1 <= self.n_raw_pieces <= self.m_demanded_pieces <= most:
            wrong = f"n_raw_pieces={self.n_raw_pieces} of size {raw_piece_size} cannot be cut into "
            raise ValueError(f"{wrong}m_demanded_pieces={self.m_demanded_pieces}; give at least 1 for at most {most}")

    def _cut(self, raw_piece_size: Piece, streams: RandomStreams, which: Array) -> Array:
        """Cut raw pieces at random in n episodes at once, [n, m_demanded_pieces, 2]."""
        length = self.m_demanded_pieces
        pieces = np.zeros((len(which), length, 2), np.int64)
        pieces[:, : self.n_raw_pieces] = raw_piece_size
        counts = np.full(len(which), self.n_raw_pieces)
        places = np.arange(length)
        running = np.flatnonzero(counts < length)
        while len(running):
            index = streams.integers(counts[running], which=which[running])
            axis = streams.integers(2, which=which[running])
            extent = pieces[running, index, axis]
            cut = streams.integers(extent, which=which[running])
            is_cut = cut > 0
            rows = running[is_cut]
            index, axis, cut = index[is_cut], axis[is_cut], cut[is_cut]
            before = pieces[rows]
            source = places - (places > index[:, np.newaxis])
            after = np.take_along_axis(before, source[..., np.newaxis], axis=1)
            lines = np.arange(len(rows))
            after[lines, index, axis] = cut
            after[lines, index + 1, axis] -= cut
            pieces[rows] = after
            counts[rows] += 1
            running = running[counts[running] < length]
        return pieces
