"""Values that many environments log, in the order of each environment's acts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maze_pl.core.episode_batch import consecutive, parts_of
from maze_pl.envs.structured_env import Array

_FIRST_CAPACITY = 64


class Ended(NamedTuple):
    """Entries of ended episodes in a log.

    Attributes:
        envs: [n] environments of the episodes.
        starts: [n] position of the first entry of each episode.
        counts: [n] number of entries of each episode.
    """

    envs: Array
    starts: Array
    counts: Array


class ValueLog:
    """Rows of values for each of N environments, [C, N, ...], that grow as needed.

    Args:
        n_envs: Number of environments.
        columns: Name -> the shape and dtype of a value.

    Attributes:
        columns: Name -> [C, N, ...] the values.
        lengths: [N] number of values of each environment.
        starts: [N] position of the first value of its running episode.
    """

    def __init__(self, n_envs: int, columns: dict[str, tuple[tuple[int, ...], np.dtype]]) -> None:
        self._n_envs = n_envs
        self.columns: dict[str, Array] = {}
        for name, (shape, dtype) in columns.items():
            self.columns[name] = np.zeros((_FIRST_CAPACITY, n_envs, *shape), dtype)
        self._capacity = _FIRST_CAPACITY
        self.lengths = np.zeros(n_envs, np.int64)
        self.starts = np.zeros(n_envs, np.int64)
        self._common_length: int | None = 0  # length of all environments, None if they differ
        self._ended: list[Ended] = []

    def append(self, which: Array | slice, values: dict[str, Array]) -> None:
        """Add a value to some environments.

        Args:
            which: `slice(None)` for all environments, or [n] their numbers; each may occur several times.
            values: Name -> [n, ...], of all environments [N, ...].
        """
        if isinstance(which, slice) and self._common_length is not None:
            place = self._common_length
            self._reserve(place + 1)
            for name, array in values.items():
                self.columns[name][place] = array
            self._common_length += 1
            self.lengths += 1
            return
        envs = np.arange(self._n_envs) if isinstance(which, slice) else which
        if not len(envs):
            return
        places = self.lengths[envs] + number_of_earlier(envs)
        self._reserve(int(places.max()) + 1)
        for name, array in values.items():
            self.columns[name][places, envs] = array
        np.add.at(self.lengths, envs, 1)
        self._common_length = None

    def convert(self, name: str, dtype: np.dtype) -> None:
        """Convert a column to a dtype that also holds other values."""
        if self.columns[name].dtype != dtype:
            self.columns[name] = self.columns[name].astype(dtype)

    def end_episodes(self, envs: Array) -> None:
        """End the running episodes of environments [n]."""
        starts = self.starts[envs]
        lengths = self.lengths[envs]
        self._ended.append(Ended(envs, starts, lengths - starts))
        self.starts[envs] = lengths

    def ended(self) -> Ended:
        """Return the ended episodes, in the order in which they ended unless they were sorted."""
        parts = self._ended
        if len(parts) != 1:
            none = np.zeros(0, np.int64)
            parts = parts or [Ended(none, none, none)]
            self._ended = [Ended(*map(np.concatenate, zip(*parts, strict=True)))]
        return self._ended[0]

    def sort_ended(self, order: Array) -> None:
        """Bring the ended episodes into another order, given by their positions [n]."""
        ended = self.ended()
        self._ended = [Ended(ended.envs[order], ended.starts[order], ended.counts[order])]

    def values_of(self, name: str, episodes: Ended) -> Array:
        """Return the values of episodes, one after the other, [V, ...]."""
        column = self.columns[name]
        values: Array = np.empty((int(episodes.counts.sum()), *column.shape[2:]), column.dtype)
        flat = column.reshape(-1, *column.shape[2:])  # one row after the other
        for part, place in parts_of(episodes.counts):
            counts = episodes.counts[part]
            before = np.cumsum(counts) - counts
            firsts = (episodes.starts[part] - before) * self._n_envs + episodes.envs[part]
            values[place] = flat[np.repeat(firsts, counts) + np.arange(int(counts.sum())) * self._n_envs]
        return values

    def drop_ended(self) -> None:
        """Forget the ended episodes; space is reused when much of it is free."""
        self._ended = []
        longest = int((self.lengths - self.starts).max())
        if self._capacity <= _FIRST_CAPACITY or 2 * longest > int(self.lengths.max()):
            return
        counts = self.lengths - self.starts
        if self._common_length is not None:
            first = self._common_length - longest
            for array in self.columns.values():
                array[:longest] = array[first : self._common_length]
        else:
            envs = np.repeat(np.arange(self._n_envs), counts)
            before = consecutive(self.starts, counts)
            after = consecutive(longest - counts, counts)
            for array in self.columns.values():
                array[after, envs] = array[before, envs]
        self._align(longest, counts)

    def _align(self, length: int, counts: Array) -> None:
        """Let all environments have the same number of rows, the last of which are their running episodes.

        Args:
            length: Number of rows.
            counts: [N] number of values of each running episode.
        """
        self.lengths = np.full(self._n_envs, length)
        self.starts = length - counts
        self._common_length = length

    def _reserve(self, n_rows: int) -> None:
        """Make room for rows."""
        if n_rows <= self._capacity:
            return
        self._capacity = max(n_rows, 2 * self._capacity)
        for name, array in self.columns.items():
            grown = np.zeros((self._capacity, *array.shape[1:]), array.dtype)
            grown[: len(array)] = array
            self.columns[name] = grown

    def state_dict(self) -> dict[str, object]:
        """Return the values of the running episodes; call it when no ended episode is waiting."""
        counts = self.lengths - self.starts
        running = Ended(np.arange(self._n_envs), self.starts, counts)
        columns = {name: self.values_of(name, running) for name in self.columns}
        return {"counts": counts, "columns": columns}

    @classmethod
    def from_state(cls, n_envs: int, state: dict[str, dict[str, Array]]) -> ValueLog:
        """Make a log from the result of `state_dict`."""
        columns = state["columns"]
        log = cls(n_envs, {name: (values.shape[1:], values.dtype) for name, values in columns.items()})
        counts = np.asarray(state["counts"])
        longest = int(counts.max())
        log._reserve(longest)
        places = consecutive(longest - counts, counts)
        envs = np.repeat(np.arange(n_envs), counts)
        for name, values in columns.items():
            log.columns[name][places, envs] = values
        log._align(longest, counts)
        return log


def number_of_earlier(envs: Array) -> Array:
    """Number of earlier occurrences of each entry, [n]."""
    if len(envs) < 2 or (np.diff(envs) > 0).all():
        return np.zeros(len(envs), np.int64)
    order = np.argsort(envs, kind="stable")
    ordered = envs[order]
    is_first = np.diff(ordered, prepend=ordered[0] - 1) != 0
    positions = np.arange(len(envs))
    firsts = np.maximum.accumulate(np.where(is_first, positions, 0))
    earlier = np.empty(len(envs), np.int64)
    earlier[order] = positions - firsts
    return earlier
