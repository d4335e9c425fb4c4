"""Declared statistics of many episodes at once, equal to those of single episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from maze_pl.core.episode_batch import StatColumn, consecutive
from maze_pl.core.histogram import number_array
from maze_pl.events.attribute_values import widened
from maze_pl.events.episode_statistics import as_number
from maze_pl.events.topics import ZERO_OF_NOTHING, EventDeclaration, Reducer

Array = np.ndarray[Any, np.dtype[Any]]


class GroupedEvents:
    """Events of one kind in n episodes, one episode after the other.

    Args:
        declaration: Declaration of the event.
        counts: [n] number of events of each episode.
        steps: [E] environment step of each event in its episode, ascending.
        columns: Input of the step statistics -> [E, ...] its values.
        n_steps: [n] number of steps of each episode.
    """

    def __init__(
        self,
        declaration: EventDeclaration,
        counts: Array,
        steps: Array,
        columns: Mapping[str | None, Array],
        n_steps: Array,
    ) -> None:
        self.declaration = declaration
        self.counts = counts
        self.steps = steps
        self.columns = columns
        self.n_steps = n_steps
        self._n_episodes = len(counts)

    def statistics(self) -> dict[str | None, StatColumn]:
        """Episode statistics by output name; an episode without a value is left out."""
        by_step: dict[str | None, tuple[Array, Array]] = {}
        for statistic in self.declaration.step:
            with self.declaration.reducing("step", statistic):
                by_step[statistic.output_name] = self._by_step(statistic.reduce, statistic.input_name)
        result: dict[str | None, StatColumn] = {}
        for statistic in self.declaration.episode:
            with self.declaration.reducing("episode", statistic):
                values, counts = by_step[statistic.input_name]
                result[statistic.output_name] = reduced_episodes(statistic.reduce, values, counts)
        return result

    def _by_step(self, reduce: Reducer, name: str | None) -> tuple[Array, Array]:
        """Values of the steps of all episodes, and their number in each episode."""
        if reduce is None:
            return self.columns[name], self.counts
        first_steps = np.cumsum(self.n_steps) - self.n_steps
        places = np.repeat(first_steps, self.counts) + self.steps  # of each event among all steps
        n_places = int(self.n_steps.sum())
        if reduce is len:
            return np.bincount(places, minlength=n_places), self.n_steps
        values = widened(self.columns[name])
        if reduce is sum:
            totals = np.zeros((n_places, *values.shape[1:]), _sum_dtype(values))
            np.add.at(totals, places, values)
            return totals, self.n_steps
        if not len(places):
            if reduce in ZERO_OF_NOTHING:
                return np.zeros(n_places, np.int64), self.n_steps
            return values, self.counts
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        parts = np.split(values, firsts[1:])
        reduced = number_array([reduce(_listed(part)) for part in parts])
        occupied = places[firsts]
        if reduce in ZERO_OF_NOTHING:
            filled = np.zeros((n_places, *reduced.shape[1:]), reduced.dtype)
            filled[occupied] = reduced
            return filled, self.n_steps
        episode_of = np.searchsorted(np.cumsum(self.n_steps), occupied, side="right")
        return reduced, np.bincount(episode_of, minlength=self._n_episodes)


def reduced_episodes(reduce: Reducer, values: Array, counts: Array) -> StatColumn:
    """Reduce the values of each episode.

    Args:
        reduce: The reduction; None keeps the values.
        values: [V, ...] values of all episodes, one after the other.
        counts: [n] number of values of each episode.

    Returns:
        A column of the episodes that have a result.
    """
    having = np.arange(len(counts)) if reduce in ZERO_OF_NOTHING else np.flatnonzero(counts)
    if reduce is None:
        return StatColumn(having, values, counts[having])
    if reduce is len:
        return StatColumn(having, counts.astype(np.float64))
    if not len(having):
        return StatColumn(having, np.zeros(0))
    if values.ndim == 1 and values.dtype.kind in "biuf":
        fast = _FAST.get(reduce)
        if fast is not None and not (values.dtype.kind == "f" and np.isnan(values).any()):
            return StatColumn(having, fast(values, counts)[having])
    parts = np.split(widened(values), np.cumsum(counts)[:-1])
    results = [as_number(reduce(_listed(parts[place]))) for place in having.tolist()]
    if any(isinstance(result, np.ndarray) for result in results):
        arrays = [np.atleast_1d(result) for result in results]
        return StatColumn(having, np.concatenate(arrays), np.array([len(array) for array in arrays]))
    return StatColumn(having, np.array(results, np.float64))


def _listed(values: Array) -> list[Any]:
    """Values as the reducers of single episodes get them: Python's numbers, or arrays."""
    return values.tolist() if values.ndim == 1 else list(values)


def _sum_dtype(values: Array) -> Any:
    """Type of the sum of widened values: Python's numbers for scalars; flags are counted."""
    if values.ndim == 1:
        return np.float64 if values.dtype.kind == "f" else np.int64
    return np.int64 if values.dtype.kind == "b" else values.dtype


def _sums(values: Array, counts: Array) -> Array:
    """Sum of each episode, added up from the first value to the last, as `sum` does."""
    episodes = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(episodes, values.astype(np.float64), len(counts))


def _means(values: Array, counts: Array) -> Array:
    """Mean of each episode, added up pairwise, as `np.mean` does."""
    means = np.zeros(len(counts))
    starts = np.cumsum(counts) - counts
    numbers = values.astype(np.float64)
    for count in np.unique(counts[counts > 0]).tolist():
        chosen = np.flatnonzero(counts == count)
        places = consecutive(starts[chosen], counts[chosen]).reshape(len(chosen), count)
        means[chosen] = numbers[places].mean(axis=1)
    return means


def _extremes(choose: np.ufunc) -> Callable[[Array, Array], Array]:
    """Function that returns the smallest or largest value of each episode."""

    def chosen(values: Array, counts: Array) -> Array:
        having = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[having]
        result = np.zeros(len(counts))
        result[having] = choose.reduceat(values, starts)
        return result

    return chosen


_FAST: dict[Any, Callable[[Array, Array], Array]] = {
    sum: _sums,
    np.mean: _means,
    min: _extremes(np.minimum),
    np.min: _extremes(np.minimum),
    max: _extremes(np.maximum),
    np.max: _extremes(np.maximum),
}
