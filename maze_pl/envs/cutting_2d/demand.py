"""Interface of generators of orders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.structured_env import Array


class DemandGenerator(ABC):
    """Generates orders; holds no state, so that an episode depends on its seed alone.

    Attributes:
        repeats: Whether all periods of an episode are the same, so that `periods` is called once.
    """

    repeats: bool = False

    def check(self, raw_piece_size: Piece) -> None:  # noqa: B027  a hook
        """Refuse orders that cannot be cut out of a raw piece, when an environment is made; nothing by default.

        Orders that are drawn are checked, too.

        Args:
            raw_piece_size: Size of a raw piece.

        Raises:
            ValueError: There may be such orders.
        """

    @abstractmethod
    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the next orders, each small enough to be cut out of a raw piece.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            last: The result of the previous call; empty at the start of an episode.
        """

    def redraw(
        self, raw_piece_size: Piece, generator: np.random.Generator, orders: list[Piece], n_known: int
    ) -> list[Piece]:
        """Return orders of which those that are not known are drawn again.

        By default, they are those of the first orders of another episode, whatever the known ones
        are.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            orders: Orders of the running period.
            n_known: Number of orders that were seen.
        """
        others = self.period(raw_piece_size, generator, [])
        return [*orders[:n_known], *others[n_known : len(orders)]]

    def periods(self, raw_piece_size: Piece, streams: RandomStreams, which: Array) -> Array:
        """Return the next orders of n episodes in arrays; for each, equal to those of `period`.

        Args:
            raw_piece_size: Size of a raw piece.
            streams: Source of all randomness, a stream for each environment.
            which: [n] numbers of the streams.

        Returns:
            [n, L, 2] int64, with the same L in all calls.

        Raises:
            TypeError: This generator has no array form (the default).
        """
        raise TypeError(f"{type(self).__name__} has no array form; define its periods, or use the sequential one")


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several pieces that are ordered in a cycle, or a generator."""
