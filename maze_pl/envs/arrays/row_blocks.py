"""Rows of a table for the running episodes of many environments, in blocks that are used again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maze_pl.core.episode_batch import consecutive
from maze_pl.envs.arrays.value_log import number_of_earlier
from maze_pl.envs.structured_env import Array

_SIZE = 16
"""Rows of a block."""


class EndedRows(NamedTuple):
    """Rows of ended episodes.

    Attributes:
        places: [n] places of the episodes, as given when they ended.
        counts: [n] number of rows of each of them, at least 1.
        blocks: [m] their blocks, one episode after the other.
    """

    places: Array
    counts: Array
    blocks: Array


class RowBlocks:
    """Numbers of rows for N environments, in blocks of 16 rows for each episode.

    Taking and finding rows takes time for these rows only; their number grows with those in use.

    Args:
        n_envs: Number of environments.

    Attributes:
        counts: [N] rows of the running episodes.
        n_rows: Number of all rows, those that are free included.
    """

    def __init__(self, n_envs: int) -> None:
        self.counts = np.zeros(n_envs, np.int64)
        self.n_rows = 0
        self._blocks = np.zeros((n_envs, 1), np.int64)  # [N, K] of the running episodes, in order
        self._free = np.zeros(0, np.int64)  # the first `_n_free` are free
        self._n_free = 0
        self._ended: list[EndedRows] = []

    def take(self, envs: Array) -> Array:
        """Return the next row of each environment, [n]; an environment may occur several times."""
        places = self.counts[envs] + number_of_earlier(envs)
        numbers, offsets = np.divmod(places, _SIZE)
        beginning = np.flatnonzero(offsets == 0)
        if len(beginning):
            self._widen(int(numbers[beginning].max()) + 1)
            self._blocks[envs[beginning], numbers[beginning]] = self._allocate(len(beginning))
        np.add.at(self.counts, envs, 1)
        rows: Array = self._blocks[envs, numbers] * _SIZE + offsets
        return rows

    def running(self) -> tuple[Array, Array]:
        """Return the rows of the running episodes with their environments, sorted by these."""
        envs = np.flatnonzero(self.counts)
        counts = self.counts[envs]
        rows = _rows_of(self._blocks_of(envs), counts, np.arange(len(envs)))
        return rows, np.repeat(envs, counts)

    def end_episodes(self, envs: Array, first_place: int) -> None:
        """End the running episodes of environments [n]; their places are counted from `first_place` on."""
        having = np.flatnonzero(self.counts[envs])
        if len(having):
            chosen = envs[having]
            places = first_place + having
            self._ended.append(EndedRows(places, self.counts[chosen], self._blocks_of(chosen)))
            self.counts[chosen] = 0

    def ended(self, rank: Array) -> tuple[Array, Array]:
        """Return the rows of the ended episodes, with the ranks of their episodes, ascending.

        Args:
            rank: [R] rank of the episode at each place.
        """
        if not self._ended:
            none = np.zeros(0, np.int64)
            return none, none
        ended = EndedRows(*map(np.concatenate, zip(*self._ended, strict=True)))
        ranks = rank[ended.places]
        order = np.argsort(ranks)
        rows = _rows_of(ended.blocks, ended.counts, order)
        return rows, np.repeat(ranks[order], ended.counts[order])

    def free_ended(self) -> Array:
        """Make the blocks of the ended episodes free; return all their rows."""
        if not self._ended:
            return np.zeros(0, np.int64)
        blocks = np.concatenate([ended.blocks for ended in self._ended])
        self._ended = []
        return self._release(blocks)

    def drop_running(self, envs: Array) -> Array:
        """Make the blocks of running episodes free; return all their rows."""
        blocks = self._blocks_of(envs)
        self.counts[envs] = 0
        return self._release(blocks)

    def _blocks_of(self, envs: Array) -> Array:
        """Return the blocks of running episodes, one episode after the other."""
        n_blocks = _n_blocks(self.counts[envs])
        width = int(n_blocks.max(initial=0))
        blocks: Array = self._blocks[envs, :width][np.arange(width) < n_blocks[:, np.newaxis]]
        return blocks

    def _widen(self, n_blocks: int) -> None:
        """Make room for so many blocks of an episode."""
        n_envs, width = self._blocks.shape
        if n_blocks > width:
            wider = np.zeros((n_envs, max(n_blocks, 2 * width)), np.int64)
            wider[:, :width] = self._blocks
            self._blocks = wider

    def _allocate(self, n_blocks: int) -> Array:
        """Return free blocks, [n]; if there are too few, the number of rows at least doubles."""
        missing = n_blocks - self._n_free
        if missing > 0:
            known = len(self._free)
            added = np.arange(known, known + max(missing, known, 4))
            room = np.zeros(known - self._n_free, np.int64)
            self._free = np.concatenate([self._free[: self._n_free], added, room])
            self._n_free += len(added)
            self.n_rows = len(self._free) * _SIZE
        self._n_free -= n_blocks
        return self._free[self._n_free : self._n_free + n_blocks]

    def _release(self, blocks: Array) -> Array:
        """Make blocks free; return their rows."""
        self._free[self._n_free : self._n_free + len(blocks)] = blocks
        self._n_free += len(blocks)
        rows: Array = (blocks[:, np.newaxis] * _SIZE + np.arange(_SIZE)).ravel()
        return rows


def _n_blocks(counts: Array) -> Array:
    """Number of blocks of episodes with so many rows, [n]."""
    numbers: Array = -(-counts // _SIZE)
    return numbers


def _rows_of(blocks: Array, counts: Array, order: Array) -> Array:
    """Return the rows of episodes in another order.

    Args:
        blocks: [m] their blocks, one episode after the other.
        counts: [n] number of rows of each episode.
        order: [n] positions of the episodes.
    """
    n_blocks = _n_blocks(counts)
    firsts = (np.cumsum(n_blocks) - n_blocks) * _SIZE
    places = consecutive(firsts[order], counts[order])
    rows: Array = blocks[places // _SIZE] * _SIZE + places % _SIZE
    return rows
