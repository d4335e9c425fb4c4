"""Declared statistics of many episodes at once, equal to those of single episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.core.episode_batch import StatColumn, consecutive
from maze_pl.core.histogram import NUMBER_KINDS
from maze_pl.events.attribute_values import widened
from maze_pl.events.episode_statistics import episode_value, step_values
from maze_pl.events.topics import ZERO_OF_NOTHING, EventDeclaration, Reducer, Statistic

Array = np.ndarray[Any, np.dtype[Any]]


class GroupedEvents:
    """Events of one kind in n episodes, one episode after the other.

    Args:
        declaration: Declaration of the event.
        counts: [n] number of events of each episode.
        steps: [E] environment step of each event in its episode, ascending.
        columns: Input of the step statistics -> [E, ...] its values: numbers of one shape, or [E] objects.
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

    def statistics(self) -> dict[str | None, StatColumn]:
        """Episode statistics by output name; an episode without a value is left out."""
        having = np.flatnonzero(self.counts)
        if len(having) == len(self.counts) or all(column.ndim == 1 for column in self.columns.values()):
            return self._statistics()
        # Without events, an episode has zeros that are numbers, not arrays.
        missing = np.flatnonzero(self.counts == 0)
        columns: dict[str | None, list[StatColumn]] = {}
        for episodes, events in ((having, self._with_events(having)), (missing, self._without_events(missing))):
            for name, column in events._statistics().items():
                columns.setdefault(name, []).append(replace(column, episodes=episodes[column.episodes]))
        everyone = np.arange(len(self.counts))
        return {name: StatColumn.joined(parts).ordered(everyone, len(everyone)) for name, parts in columns.items()}

    def _with_events(self, episodes: Array) -> GroupedEvents:
        """Return the same events, without the episodes that have none."""
        return GroupedEvents(self.declaration, self.counts[episodes], self.steps, self.columns, self.n_steps[episodes])

    def _without_events(self, episodes: Array) -> GroupedEvents:
        """Return the episodes that have no events."""
        columns = {name: np.zeros(0) for name in self.columns}
        return GroupedEvents(self.declaration, self.counts[episodes], self.steps[:0], columns, self.n_steps[episodes])

    def _statistics(self) -> dict[str | None, StatColumn]:
        """Episode statistics, where the zeros of all episodes have the same shape."""
        result: dict[str | None, StatColumn] = {}
        for step in self.declaration.step:
            name = step.output_name
            users = [statistic for statistic in self.declaration.episode if statistic.input_name == name]
            if self._is_reduced_at_once(step):
                with self.declaration.reducing("step", step):
                    by_step = self._by_step(step.reduce, step.input_name)
                for statistic in users:
                    with self.declaration.reducing("episode", statistic):
                        result[statistic.output_name] = by_step.reduced(statistic.reduce)
            elif users:
                with self.declaration.reducing("step", step):
                    of_episodes = self._one_by_one(step)
                for statistic in users:
                    with self.declaration.reducing("episode", statistic):
                        results = [episode_value(statistic.reduce, values) for values in of_episodes]
                        result[statistic.output_name] = _column_of(results)
        return result

    def _is_reduced_at_once(self, step: Statistic) -> bool:
        """True if a step statistic of all episodes can be computed in arrays."""
        if step.reduce is len:
            return True
        values = self.columns[step.input_name]
        if values.dtype.kind not in NUMBER_KINDS:
            return False
        if step.reduce is sum:
            return values.ndim > 1 or _is_exact_sum(values, self.counts)
        return step.reduce is None or has_vector_form(step.reduce, values)

    def _one_by_one(self, step: Statistic) -> list[Sequence[Any]]:
        """Step statistics of each episode, as single environments compute them."""
        ends = np.cumsum(self.counts).tolist()
        steps = self.steps.tolist()
        values = list_of(self.columns[step.input_name])
        of_episodes = []
        for (start, end), n_steps in zip(pairwise([0, *ends]), self.n_steps.tolist(), strict=True):
            of_episodes.append(step_values(step.reduce, steps[start:end], values[start:end], n_steps))
        return of_episodes

    def _by_step(self, reduce: Reducer, name: str | None) -> _ByStep:
        """Step statistics of all episodes."""
        if reduce is None:
            return _ByStep(self.columns[name], self.counts, None, None)
        first_steps = np.cumsum(self.n_steps) - self.n_steps
        of_event = np.repeat(first_steps, self.counts) + self.steps  # among those of all episodes
        firsts = np.flatnonzero(np.diff(of_event, prepend=-1))
        places = of_event[firsts]
        n_events = np.diff(firsts, append=len(of_event))  # of each step that has any
        if reduce is len:
            values = n_events
        elif reduce is sum:
            added = widened(self.columns[name])
            values = np.zeros((len(firsts), *added.shape[1:]), _sum_dtype(added))
            np.add.at(values, np.repeat(np.arange(len(firsts)), n_events), added)
        else:
            values = reduced_runs(reduce, widened(self.columns[name]), n_events)
        episodes = np.searchsorted(np.cumsum(self.n_steps), places, side="right")
        counts = np.bincount(episodes, minlength=len(self.counts))
        if reduce in ZERO_OF_NOTHING:
            return _ByStep(values, counts, places, self.n_steps)
        return _ByStep(values, counts, None, None)


class _ByStep(NamedTuple):
    """Step statistics of n episodes, one episode after the other.

    Attributes:
        values: [V, ...] values of the steps that have events.
        counts: [n] number of these steps in each episode.
        places: [V] these steps among those of all episodes; None if the other steps have no value.
        n_steps: [n] number of all steps of each episode, whose value is 0 without events; or None.
    """

    values: Array
    counts: Array
    places: Array | None
    n_steps: Array | None

    def reduced(self, reduce: Reducer) -> StatColumn:
        """Reduce the values of each episode; zeros take no time where they can be left out."""
        if self.places is None or self.n_steps is None:
            return reduced_episodes(reduce, self.values, self.counts)
        n_zeros = self.n_steps - self.counts
        if not n_zeros.any() or self._are_zeros_neutral(reduce):
            return reduced_episodes(reduce, self.values, self.counts)
        if reduce is len:
            return reduced_episodes(reduce, self.values, self.n_steps)
        if reduce is np.mean and self._is_exact_mean():
            having = np.flatnonzero(self.n_steps)
            totals = reduced_episodes(sum, self.values, self.counts).values
            return StatColumn(having, totals[having] / self.n_steps[having])
        if reduce in _EXTREMES and self._is_in_any_order():
            having = np.flatnonzero(self.n_steps)
            extremes = np.zeros(len(self.counts))  # of episodes without events
            column = reduced_episodes(reduce, self.values, self.counts)
            with_zeros = _EXTREMES[reduce](column.values, 0.0)
            has_zeros = n_zeros[column.episodes] > 0
            extremes[column.episodes] = np.where(has_zeros, with_zeros, column.values)
            return StatColumn(having, extremes[having])
        filled = np.zeros((int(self.n_steps.sum()), *self.values.shape[1:]), self.values.dtype)
        filled[self.places] = self.values
        return reduced_episodes(reduce, filled, self.n_steps)

    def _are_zeros_neutral(self, reduce: Reducer) -> bool:
        """True if a reduction is the same without zeros, bit for bit, and exists without values."""
        if self.values.ndim > 1:
            return False
        is_whole = self.values.dtype.kind in "iu"
        return reduce is sum or reduce is math.fsum or (reduce is np.sum and is_whole)

    def _is_in_any_order(self) -> bool:
        """True if extremes of the values and of zeros do not depend on their order."""
        return self.values.ndim == 1 and not _depends_on_order(self.values, True).any()

    def _is_exact_mean(self) -> bool:
        """True if sums of the values are exact in 64-bit floats, with zeros in any place."""
        if not len(self.values):
            return True
        if self.values.ndim > 1 or self.values.dtype.kind not in "iu":
            return False
        largest = max(-int(self.values.min()), int(self.values.max()))
        return largest * int(self.counts.max()) <= 2**53


def reduced_episodes(reduce: Reducer, values: Array, counts: Array) -> StatColumn:
    """Reduce the values of each episode.

    Args:
        reduce: The reduction; None keeps the values.
        values: [V, ...] values of all episodes, one after the other; numbers.
        counts: [n] number of values of each episode.

    Returns:
        A column of the episodes that have a result.
    """
    occupied = np.flatnonzero(counts)
    having = np.arange(len(counts)) if reduce in ZERO_OF_NOTHING else occupied
    if reduce is None:
        return StatColumn(having, values, counts[having])
    if reduce is len:
        return StatColumn(having, counts.astype(np.float64))
    if has_vector_form(reduce, values) and (reduce is not sum or _is_exact_sum(values, counts)):
        results = np.zeros(len(counts))
        results[occupied] = reduced_runs(reduce, widened(values), counts[occupied])
        return StatColumn(having, results[having])
    ends = np.cumsum(counts).tolist()
    listed = list_of(values)
    return _column_of([episode_value(reduce, listed[start:end]) for start, end in pairwise([0, *ends])])


def list_of(values: Array) -> list[Any]:
    """List of values as the reducers of single episodes get them: Python's numbers, other objects, or arrays."""
    return values.tolist() if values.ndim == 1 else list(values)


def _column_of(results: Sequence[float | Array | None]) -> StatColumn:
    """Column of the results of n episodes; None for those without one."""
    having = np.array([episode for episode, result in enumerate(results) if result is not None], np.int64)
    return StatColumn.of(having, [result for result in results if result is not None])


# ------------------------------------------------------------------------------------------- reductions of runs


def has_vector_form(reduce: Reducer, values: Array) -> bool:
    """True if `reduced_runs` knows the reduction of such values, [V, ...]."""
    if values.dtype.kind not in NUMBER_KINDS:
        return False
    return reduce in _OF_ALL_NUMBERS or (values.ndim == 1 and reduce in _OF_SCALARS)


def reduced_runs(reduce: Reducer, values: Array, counts: Array) -> Array:
    """Reduce each run of values to one number; the results equal those of the function, bit for bit.

    Args:
        reduce: A reduction with a vector form.
        values: [V, ...] values of all runs, one run after the other, of 64 bits or flags.
        counts: [r] number of values of each run, at least 1.

    Returns:
        [r]
    """
    if not len(counts):
        return np.zeros(0)
    if values.ndim > 1:
        counts = counts * math.prod(values.shape[1:])
        values = values.ravel()
    starts = np.cumsum(counts) - counts
    if reduce is sum:
        return _sums(values, starts, counts)
    if reduce is math.fsum:
        return _exact_sums(values, starts, counts)
    if reduce in _EXTREMES:
        return _extremes(reduce, values, starts, counts)
    return _by_rows(reduce, values, starts, counts)


def _is_exact_sum(values: Array, counts: Array) -> bool:
    """True if the sums of runs of integers, [V], fit into 64 bits."""
    if values.dtype.kind not in "iu" or not len(values):
        return True
    largest = max(-int(values.min()), int(values.max()))
    return largest * int(counts.max()) < 2**63


def _sum_dtype(values: Array) -> Any:
    """Type of the sum of widened values: Python's numbers for scalars; flags are counted."""
    if values.ndim == 1:
        return np.float64 if values.dtype.kind == "f" else np.int64
    return np.int64 if values.dtype.kind == "b" else values.dtype


def _sums(values: Array, starts: Array, counts: Array) -> Array:
    """Sum of each run, added up from the first value to the last, as `sum` does."""
    if values.dtype.kind != "f":
        return np.add.reduceat(values.astype(np.int64), starts)
    runs = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(runs, values, len(counts))


def _exact_sums(values: Array, starts: Array, counts: Array) -> Array:
    """Sum of each run, rounded once, as `math.fsum` does."""
    sums = values.astype(np.float64)[starts] + 0.0  # of runs with a single value; never -0.0
    for run in np.flatnonzero(counts > 1).tolist():
        sums[run] = math.fsum(values[starts[run] : starts[run] + counts[run]].tolist())
    return sums


def _extremes(reduce: Any, values: Array, starts: Array, counts: Array) -> Array:
    """Smallest or largest value of each run."""
    extremes: Array = _EXTREMES[reduce].reduceat(values, starts)
    if values.dtype.kind != "f":
        return extremes
    depends_on_order = _depends_on_order(values, reduce in _OF_SCALARS)
    if depends_on_order.any():
        runs = np.unique(np.searchsorted(starts, np.flatnonzero(depends_on_order), side="right") - 1)
        for run in runs.tolist():
            extremes[run] = reduce(values[starts[run] : starts[run] + counts[run]].tolist())
    return extremes


def _depends_on_order(values: Array, are_nans_compared: bool) -> Array:
    """[V] bool, values whose place matters for extremes: -0.0, and NaN where it is compared."""
    if values.dtype.kind != "f":
        return np.zeros(len(values), np.bool_)
    found: Array = (values == 0) & np.signbit(values)
    return found | np.isnan(values) if are_nans_compared else found


def _by_rows(reduce: Any, values: Array, starts: Array, counts: Array) -> Array:
    """Reduction of each run by a function of NumPy, of all runs of one length at once."""
    numbers = values if reduce is np.sum else values.astype(np.float64)
    is_count = reduce is np.sum and numbers.dtype.kind == "b"
    result = np.zeros(len(counts), np.int64 if is_count else numbers.dtype)
    for count in np.unique(counts).tolist():
        chosen = np.flatnonzero(counts == count)
        places = consecutive(starts[chosen], counts[chosen]).reshape(len(chosen), count)
        result[chosen] = reduce(numbers[places], axis=1)
    return result


_EXTREMES: Final[dict[Any, np.ufunc]] = {
    min: np.minimum,
    np.min: np.minimum,
    np.amin: np.minimum,
    max: np.maximum,
    np.max: np.maximum,
    np.amax: np.maximum,
}
_OF_SCALARS: Final[frozenset[Any]] = frozenset({sum, math.fsum, min, max})
_OF_ALL_NUMBERS: Final[frozenset[Any]] = frozenset(
    {np.sum, np.mean, np.std, np.var, np.median, np.min, np.max, np.amin, np.amax}
)
"""Functions that reduce arrays to one number."""
