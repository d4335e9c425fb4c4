"""Summaries of many finished episodes in arrays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from maze_pl.core.episode import MAX_SAMPLED_EPISODES, EpisodeSummary, StatKey, sampling_order

Array = np.ndarray[Any, np.dtype[Any]]
_AT_ONCE = 1 << 18


@dataclass
class StatColumn:
    """Values of one statistic in some of the episodes of a batch.

    Attributes:
        episodes: [m] int64, positions of the episodes that have a value, ascending.
        values: [m] one number for each of these episodes, or [V, ...] the observed values of all of
            them, one episode after the other.
        counts: [m] int64, number of values of each episode; None if each has one number.
        shapes: [m] shape of the value of each episode, () for a number, if they cannot be stacked;
            `values` is then a vector. None otherwise.
    """

    episodes: Array
    values: Array
    counts: Array | None = None
    shapes: list[tuple[int, ...]] | None = None

    def per_episode(self) -> Iterator[tuple[int, float | Array]]:
        """Yield the position of each episode with its value."""
        if self.counts is None:
            yield from zip(self.episodes.tolist(), self.values.tolist(), strict=True)
            return
        ends = np.cumsum(self.counts)
        starts = ends - self.counts
        parts = [self.values[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if self.shapes is None:
            yield from zip(self.episodes.tolist(), parts, strict=True)
            return
        for episode, part, shape in zip(self.episodes.tolist(), parts, self.shapes, strict=True):
            yield episode, part.reshape(shape) if shape else float(part[0])

    @classmethod
    def of(cls, episodes: Array, values: Sequence[float | Array]) -> StatColumn:
        """Make a column of the values of some episodes, numbers or arrays of any shape."""
        shapes = [np.shape(value) for value in values]
        if not any(shapes):
            return cls(episodes, np.array(values, np.float64))
        vector = np.concatenate([np.ravel(value) for value in values])
        counts = np.array([math.prod(shape) for shape in shapes], np.int64)
        return cls(episodes, vector, counts, shapes)._stacked()

    @classmethod
    def joined(cls, columns: Sequence[StatColumn]) -> StatColumn:
        """Join the columns of one statistic, one after the other.

        Args:
            columns: At least one; their episodes are positions in the same batch.
        """
        filled = [column for column in columns if len(column.episodes)] or columns[:1]
        episodes = np.concatenate([column.episodes for column in filled])
        counts = [column.counts for column in filled if column.counts is not None]
        if not counts:
            return cls(episodes, np.concatenate([column.values for column in filled]))
        is_stacked = len(counts) == len(filled) and all(column.shapes is None for column in filled)
        if is_stacked and len({column.values.shape[1:] for column in filled}) == 1:
            return cls(episodes, np.concatenate([column.values for column in filled]), np.concatenate(counts))
        vector = np.concatenate([column.values.ravel() for column in filled])
        shapes = list(chain.from_iterable(column._all_shapes() for column in filled))
        return cls(episodes, vector, np.array([math.prod(shape) for shape in shapes], np.int64), shapes)

    def _all_shapes(self) -> list[tuple[int, ...]]:
        """Shape of the value of each episode, [m]."""
        if self.shapes is not None:
            return self.shapes
        if self.counts is None:
            return [()] * len(self.episodes)
        return [(count, *self.values.shape[1:]) for count in self.counts.tolist()]

    def _stacked(self) -> StatColumn:
        """Return the same column without shapes, if the values of its episodes can be stacked."""
        if self.shapes is None or len({tuple(shape[1:]) if shape else None for shape in self.shapes}) > 1:
            return self
        if not self.shapes or not self.shapes[0]:
            return StatColumn(self.episodes, self.values)
        counts = np.array([shape[0] for shape in self.shapes], np.int64)
        values = self.values.reshape(int(counts.sum()), *self.shapes[0][1:])
        return StatColumn(self.episodes, values, counts)

    def ordered(self, rank: Array, n_chosen: int) -> StatColumn:
        """Return the column for a batch of other episodes.

        Args:
            rank: [n] position of each episode in the other batch, -1 if it is not there.
            n_chosen: Number of episodes of the other batch.
        """
        new = rank[self.episodes]
        place_of = np.full(n_chosen, -1)
        kept = np.flatnonzero(new >= 0)
        place_of[new[kept]] = kept
        order = place_of[place_of >= 0]  # places in this column, in the order of the other batch
        episodes = new[order]
        if self.counts is None:
            return StatColumn(episodes, self.values[order])
        counts = self.counts[order]
        starts = (np.cumsum(self.counts) - self.counts)[order]
        values = np.empty((int(counts.sum()), *self.values.shape[1:]), self.values.dtype)
        for part, place in parts_of(counts):
            values[place] = self.values[consecutive(starts[part], counts[part])]
        shapes = None if self.shapes is None else [self.shapes[place] for place in order.tolist()]
        return StatColumn(episodes, values, counts, shapes)._stacked()


def parts_of(counts: Array) -> Iterator[tuple[slice, slice]]:
    """Divide episodes into parts with at most about 260,000 values, so that indices take little memory.

    Args:
        counts: [n] number of values of each episode.

    Yields:
        Episodes of a part, and the places of their values among all.

    Example:
        >>> list(parts_of(np.array([2, 3])))
        [(slice(0, 2, None), slice(0, 5, None))]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    bounds = np.searchsorted(ends, np.arange(_AT_ONCE, total, _AT_ONCE))
    for first, last in pairwise([0, *bounds.tolist(), len(ends)]):
        if first < last:
            begin = int(ends[first] - counts[first])
            yield slice(first, last), slice(begin, int(ends[last - 1]))


def consecutive(starts: Array, counts: Array) -> Array:
    """Return the integers from each start on, as many as its count, one after the other.

    Example:
        >>> consecutive(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    before = np.cumsum(counts) - counts
    numbers: Array = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return numbers


@dataclass
class EpisodeBatch(Sequence[EpisodeSummary]):
    """Statistics of n finished episodes, as a sequence of `EpisodeSummary`.

    Attributes:
        env_index: [n] int64, as in `EpisodeSummary`.
        episode_index: [n] int64.
        env_steps: [n] int64.
        reward: [n] float64.
        kpis: KPI -> [n] float64, NaN where an episode has no value.
        statistics: Values of the episodes that have any, by statistic.
        samples: Values sampled at random by monitoring wrappers; see `thin_out_batches`.
    """

    env_index: Array
    episode_index: Array
    env_steps: Array
    reward: Array
    kpis: dict[str, Array] = field(default_factory=dict)
    statistics: dict[StatKey, StatColumn] = field(default_factory=dict)
    samples: dict[StatKey, StatColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.env_index)

    @overload
    def __getitem__(self, index: int) -> EpisodeSummary: ...
    @overload
    def __getitem__(self, index: slice) -> EpisodeBatch: ...
    def __getitem__(self, index: int | slice) -> EpisodeSummary | EpisodeBatch:
        """Return the summary of one episode, or a batch of several."""
        if isinstance(index, slice):
            return self.chosen(np.arange(len(self))[index])
        place = range(len(self))[index]
        return next(iter(self.chosen(np.array([place]))))

    def __iter__(self) -> Iterator[EpisodeSummary]:
        """Yield the summary of each episode."""
        statistics = _per_episode(self.statistics, len(self))
        samples = _per_episode(self.samples, len(self))
        kpis: list[dict[str, float]] = [{} for _ in range(len(self))]
        for name, values in self.kpis.items():
            for place in np.flatnonzero(~np.isnan(values)).tolist():
                kpis[place][name] = float(values[place])
        numbers = zip(
            self.env_steps.tolist(),
            self.reward.tolist(),
            self.env_index.tolist(),
            self.episode_index.tolist(),
            strict=True,
        )
        for place, (env_steps, reward, env_index, episode_index) in enumerate(numbers):
            summary = EpisodeSummary(statistics[place], env_steps, reward, kpis[place])
            summary.env_index, summary.episode_index = env_index, episode_index
            summary.samples = samples[place]
            yield summary

    def chosen(self, order: Array) -> EpisodeBatch:
        """Return some episodes in another order.

        Args:
            order: [m] their positions, each at most once.
        """
        rank = np.full(len(self), -1)
        rank[order] = np.arange(len(order))
        return EpisodeBatch(
            self.env_index[order],
            self.episode_index[order],
            self.env_steps[order],
            self.reward[order],
            {name: values[order] for name, values in self.kpis.items()},
            {key: column.ordered(rank, len(order)) for key, column in self.statistics.items()},
            {key: column.ordered(rank, len(order)) for key, column in self.samples.items()},
        )

    def all_columns(self) -> dict[StatKey, StatColumn]:
        """Return statistics and samples; some episodes may have a number, and others a sample."""
        columns = {**self.statistics, **self.samples}
        for key in self.statistics.keys() & self.samples.keys():
            both = StatColumn.joined([self.statistics[key], self.samples[key]])
            columns[key] = both.ordered(np.arange(len(self)), len(self))
        return columns

    def keep_samples(self, kept: Array) -> None:
        """Drop the samples of all other episodes.

        Args:
            kept: [m] positions of the episodes that keep them.
        """
        rank = np.full(len(self), -1)
        rank[kept] = kept
        columns = {key: column.ordered(rank, len(self)) for key, column in self.samples.items()}
        self.samples = {key: column for key, column in columns.items() if len(column.episodes)}

    def to_dict(self) -> dict[str, Any]:
        """Convert the batch to dicts, strings and arrays."""
        statistics = {key: vars(column) for key, column in self.statistics.items()}
        samples = {key: vars(column) for key, column in self.samples.items()}
        return {**vars(self), "statistics": statistics, "samples": samples}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EpisodeBatch:
        """Make the batch that `to_dict` converted."""
        statistics = {key: StatColumn(**column) for key, column in content["statistics"].items()}
        samples = {key: StatColumn(**column) for key, column in content.get("samples", {}).items()}
        return cls(**{**content, "statistics": statistics, "samples": samples})

    @classmethod
    def concatenated(cls, parts: Sequence[EpisodeBatch]) -> EpisodeBatch:
        """Return the episodes of several batches, one after the other."""
        kpis: dict[str, Array] = {}
        for name in dict.fromkeys(name for part in parts for name in part.kpis):
            kpis[name] = np.concatenate([part.kpis.get(name, np.full(len(part), np.nan)) for part in parts])
        lengths = [len(part) for part in parts]
        return cls(
            np.concatenate([part.env_index for part in parts]),
            np.concatenate([part.episode_index for part in parts]),
            np.concatenate([part.env_steps for part in parts]),
            np.concatenate([part.reward for part in parts]),
            kpis,
            _joined_columns(lengths, [part.statistics for part in parts]),
            _joined_columns(lengths, [part.samples for part in parts]),
        )


def _per_episode(columns: Mapping[StatKey, StatColumn], n_episodes: int) -> list[dict[StatKey, Any]]:
    """Return the values of each episode of a batch."""
    values: list[dict[StatKey, Any]] = [{} for _ in range(n_episodes)]
    for key, column in columns.items():
        for place, value in column.per_episode():
            values[place][key] = value
    return values


def _joined_columns(
    lengths: Sequence[int], of_parts: Sequence[Mapping[StatKey, StatColumn]]
) -> dict[StatKey, StatColumn]:
    """Return the columns of several batches, one after the other.

    Args:
        lengths: Number of episodes of each batch.
        of_parts: Columns of each batch.
    """
    by_key: dict[StatKey, list[StatColumn]] = {}
    first = 0
    for length, columns in zip(lengths, of_parts, strict=True):
        for key, column in columns.items():
            by_key.setdefault(key, []).append(replace(column, episodes=column.episodes + first))
        first += length
    return {key: StatColumn.joined(parts) for key, parts in by_key.items()}


def thin_out_batches(batches: Sequence[EpisodeBatch]) -> None:
    """Keep the samples of at most 100 episodes, the same ones as `thin_out` keeps.

    Args:
        batches: Batches with all episodes of an epoch so far.
    """
    sampled: list[tuple[int, int, int]] = []  # order, batch and position of each episode
    for number, batch in enumerate(batches):
        places = {place for column in batch.samples.values() for place in column.episodes.tolist()}
        for place in places:
            order = sampling_order(int(batch.env_index[place]), int(batch.episode_index[place]))
            sampled.append((order, number, place))
    if len(sampled) <= MAX_SAMPLED_EPISODES:
        return
    kept: dict[int, list[int]] = {number: [] for _, number, _ in sampled}
    for _, number, place in sorted(sampled)[:MAX_SAMPLED_EPISODES]:
        kept[number].append(place)
    for number, positions in kept.items():
        batches[number].keep_samples(np.array(positions, np.int64))


if TYPE_CHECKING:
    _Summaries = Sequence[EpisodeSummary]
else:
    _Summaries = ABC


class PendingEpisodes(_Summaries):
    """Summaries of episodes that are still on a device, to be fetched when they are needed.

    They have the methods of a sequence, but `isinstance` does not call them one: with some types of
    precision, Lightning converts the parts of a batch, and would fetch the entries of a sequence.
    """

    @abstractmethod
    def fetched(self) -> Sequence[EpisodeSummary]:
        """Fetch the episodes, or return those that were fetched before."""

    def __len__(self) -> int:
        return len(self.fetched())

    @overload
    def __getitem__(self, index: int) -> EpisodeSummary: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[EpisodeSummary]: ...
    def __getitem__(self, index: int | slice) -> EpisodeSummary | Sequence[EpisodeSummary]:
        """Return the summary of one episode, or several."""
        return self.fetched()[index]

    def __iter__(self) -> Iterator[EpisodeSummary]:
        """Yield the summary of each episode."""
        return iter(self.fetched())


class JoinedEpisodes(PendingEpisodes):
    """The episodes of several sequences, some of which may be pending."""

    def __init__(self, parts: Sequence[Sequence[EpisodeSummary]]) -> None:
        self._parts: list[Sequence[EpisodeSummary]] = []
        for part in parts:  # flat, as replay is filled by thousands of rollouts
            self._parts += part._parts if isinstance(part, JoinedEpisodes) else [part]

    def fetched(self) -> Sequence[EpisodeSummary]:
        """Fetch the parts, and join them."""
        self._parts = [joined_summaries([fetched_summaries(part) for part in self._parts])]
        return self._parts[0]


def fetched_summaries(summaries: Sequence[EpisodeSummary]) -> Sequence[EpisodeSummary]:
    """Return summaries, fetched if they are pending."""
    return summaries.fetched() if isinstance(summaries, PendingEpisodes) else summaries


def joined_summaries(parts: Sequence[Sequence[EpisodeSummary]]) -> Sequence[EpisodeSummary]:
    """Join sequences of summaries; a list, or an `EpisodeBatch` if all of them are.

    Args:
        parts: The sequences; empty ones may be of any kind. If one is pending, so is the result.
    """
    if any(isinstance(part, PendingEpisodes) for part in parts):
        return parts[0] if len(parts) == 1 else JoinedEpisodes(parts)
    filled = [part for part in parts if len(part)]
    if len(filled) == 1:
        return filled[0]
    batches = [part for part in filled if isinstance(part, EpisodeBatch)]
    if filled and len(batches) == len(filled):
        return EpisodeBatch.concatenated(batches)
    return list(chain.from_iterable(filled))
