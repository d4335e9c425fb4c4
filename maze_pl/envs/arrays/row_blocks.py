"""Rows of a table for the running episodes of many environments, in blocks that are used again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maze_pl.core.episode_batch import consecutive
from maze_pl.envs.arrays.value_log import number_of_earlier
from maze_pl.envs.structured_env import Array


class EndedRows(NamedTuple):
    """Rows of ended episodes.

    Attributes:
        places: [n] place of each episode among all that have ended, in the order in which they have.
        counts: [n] number of rows of each of them, at least 1.
        blocks: [m] first rows of their blocks, one episode after the other.
    """

    places: Array
    counts: Array
    blocks: Array


class RowBlocks:
    """Numbers of rows for N environments. An episode has blocks of 1, 2, 4, 8, ... rows, as far as it needs them.

    So an episode with n rows occupies fewer than 2n of them. Blocks of ended episodes are used again
    for blocks of the same size; the table keeps the rows for the most blocks of each size that were in
    use at once, and grows by doubling a size. Taking and finding rows takes time for these rows only.

    Args:
        n_envs: Number of environments.

    Attributes:
        counts: [N] rows of the running episodes.
        n_rows: Number of all rows, those that are free included.
    """

    def __init__(self, n_envs: int) -> None:
        self.counts = np.zeros(n_envs, np.int64)
        self.n_rows = 0
        self._blocks = np.zeros((n_envs, 1), np.int64)  # [N, K] first rows of the blocks of running episodes, in order
        self._free: list[_FreeBlocks] = []  # by the number of a block in its episode
        self._ended: list[EndedRows] = []

    def take(self, envs: Array) -> Array:
        """Return the next row of each environment, [n]; an environment may occur several times."""
        earlier = self.counts[envs] + number_of_earlier(envs)  # rows of the same episode
        numbers = _n_blocks(earlier + 1) - 1
        offsets = earlier - _rows_before(numbers)
        beginning = np.flatnonzero(offsets == 0)
        if len(beginning):
            self._begin_blocks(envs[beginning], numbers[beginning])
        np.add.at(self.counts, envs, 1)
        rows: Array = self._blocks[envs, numbers] + offsets
        return rows

    def running(self) -> tuple[Array, Array]:
        """Return the rows of the running episodes with their environments, sorted by these."""
        envs = np.flatnonzero(self.counts)
        counts = self.counts[envs]
        return _rows_of(self._blocks_of(envs), counts), np.repeat(envs, counts)

    def end_episodes(self, envs: Array, first_place: int) -> None:
        """End the running episodes of environments [n].

        Args:
            envs: The environments.
            first_place: Number of the episodes that have ended before; the places of these begin with it.
        """
        having = np.flatnonzero(self.counts[envs])
        if len(having):
            chosen = envs[having]
            places = first_place + having
            self._ended.append(EndedRows(places, self.counts[chosen], self._blocks_of(chosen)))
            self.counts[chosen] = 0

    def ended(self, rank: Array) -> tuple[Array, Array]:
        """Return the rows of the ended episodes, with the positions of their episodes, ascending.

        Args:
            rank: [R] position of each ended episode in the result, in the order in which they have ended.
        """
        ended = self._all_ended()
        ranks = rank[ended.places]
        order = np.argsort(ranks)
        n_blocks = _n_blocks(ended.counts)
        firsts = np.cumsum(n_blocks) - n_blocks
        blocks = ended.blocks[consecutive(firsts[order], n_blocks[order])]
        counts = ended.counts[order]
        return _rows_of(blocks, counts), np.repeat(ranks[order], counts)

    def free_ended(self) -> Array:
        """Make the blocks of the ended episodes free; return the rows that these had."""
        ended = self._all_ended()
        self._ended = []
        return self._release(ended.blocks, ended.counts)

    def drop_running(self, envs: Array) -> Array:
        """Make the blocks of running episodes free, each named once; return the rows that these had."""
        blocks = self._blocks_of(envs)
        counts = self.counts[envs]
        self.counts[envs] = 0
        return self._release(blocks, counts)

    def _all_ended(self) -> EndedRows:
        """Return the rows of all ended episodes."""
        none = np.zeros(0, np.int64)
        return EndedRows(
            places=np.concatenate([none, *(rows.places for rows in self._ended)]),
            counts=np.concatenate([none, *(rows.counts for rows in self._ended)]),
            blocks=np.concatenate([none, *(rows.blocks for rows in self._ended)]),
        )

    def _blocks_of(self, envs: Array) -> Array:
        """Return the blocks of running episodes, one episode after the other."""
        n_blocks = _n_blocks(self.counts[envs])
        width = int(n_blocks.max(initial=0))
        blocks: Array = self._blocks[envs, :width][np.arange(width) < n_blocks[:, np.newaxis]]
        return blocks

    def _begin_blocks(self, envs: Array, numbers: Array) -> None:
        """Give environments [n] free blocks with numbers [n] in their episodes."""
        n_envs, width = self._blocks.shape
        for number in range(int(numbers.min()), int(numbers.max()) + 1):
            if number == len(self._free):
                self._free.append(_FreeBlocks(1 << number))
            if number == width:
                self._blocks = np.concatenate([self._blocks, np.zeros((n_envs, 1), np.int64)], axis=1)
                width += 1
            chosen = envs[numbers == number]
            free = self._free[number]
            self.n_rows += free.grow(len(chosen), self.n_rows)
            self._blocks[chosen, number] = free.take(len(chosen))

    def _release(self, blocks: Array, counts: Array) -> Array:
        """Make the blocks of episodes with so many rows free; return the rows that these had."""
        numbers = _numbers_of(counts)
        for number in range(int(numbers.max(initial=-1)) + 1):
            self._free[number].put(blocks[numbers == number])
        return _rows_of(blocks, counts)


class _FreeBlocks:
    """Blocks of one size that are free.

    Args:
        size: Rows of a block.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first_rows = np.zeros(0, np.int64)  # room for all blocks of this size; the first `_n_free` are free
        self._n_free = 0

    def grow(self, n: int, n_rows: int) -> int:
        """Add blocks until n are free; if any is missing, the number of blocks at least doubles.

        Args:
            n: Number of blocks.
            n_rows: Number of the first row of blocks that are added.

        Returns:
            The number of rows of the blocks that were added.
        """
        missing = n - self._n_free
        if missing <= 0:
            return 0
        n_known = len(self._first_rows)
        n_added = max(missing, n_known)
        free = self._first_rows[: self._n_free]
        added = n_rows + self._size * np.arange(n_added)
        room = np.zeros(n_known - self._n_free, np.int64)
        self._first_rows = np.concatenate([free, added, room])
        self._n_free += n_added
        return n_added * self._size

    def take(self, n: int) -> Array:
        """Return the first rows of n free blocks, which are there, [n]."""
        self._n_free -= n
        return self._first_rows[self._n_free : self._n_free + n]

    def put(self, first_rows: Array) -> None:
        """Make blocks free again."""
        self._first_rows[self._n_free : self._n_free + len(first_rows)] = first_rows
        self._n_free += len(first_rows)


def _n_blocks(counts: Array) -> Array:
    """Number of blocks of episodes with so many rows, [n]; 0 for no rows."""
    bit_lengths: Array = np.frexp(counts)[1]  # n = m * 2^e with 0.5 <= m < 1 has e bits
    return bit_lengths


def _rows_before(numbers: Array) -> Array:
    """Rows of an episode before the block with a number, [n]."""
    rows: Array = (np.int64(1) << numbers) - 1
    return rows


def _numbers_of(counts: Array) -> Array:
    """Numbers of the blocks of episodes with so many rows, one episode after the other, [m]."""
    n_blocks = _n_blocks(counts)
    return consecutive(np.zeros_like(n_blocks), n_blocks)


def _rows_of(blocks: Array, counts: Array) -> Array:
    """Return the rows of episodes.

    Args:
        blocks: [m] first rows of their blocks, one episode after the other.
        counts: [n] number of rows of each episode.
    """
    numbers = _numbers_of(counts)
    remaining = np.repeat(counts, _n_blocks(counts)) - _rows_before(numbers)
    return consecutive(blocks, np.minimum(remaining, np.int64(1) << numbers))
