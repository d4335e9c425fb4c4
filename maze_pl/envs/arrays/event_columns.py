"""Statistics of the events of many episodes, in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.structured_env import Array
from maze_pl.events.array_reducing import GroupedEvents
from maze_pl.events.event_names import group_label, topic_name
from maze_pl.events.topics import EventDeclaration, declarations

GroupKey = tuple[type, str, tuple[str, ...]]
"""Topic, name of the event, and values of its grouping attributes."""


class Happened(NamedTuple):
    """Events of one group in n episodes, one episode after the other.

    Attributes:
        counts: [n] number of events of each episode.
        steps: [E] environment step of each event in its episode, ascending.
        values: Input of the step statistics -> [E, ...] its values.
    """

    counts: Array
    steps: Array
    values: dict[str | None, Array]


def groups_of(event: ArrayEvent) -> Iterator[tuple[tuple[str, ...], Array | None]]:
    """Yield the groups of events with their positions; None instead of the positions of all events."""
    grouping = event.declaration.grouping
    values = [event.attributes[name] for name in grouping]
    if not any(isinstance(value, np.ndarray) and value.ndim for value in values):
        yield tuple(map(group_label, grouping, values)), None
        return
    lists = [_listed(value) if isinstance(value, np.ndarray) else [value] * len(event.which) for value in values]
    names = list(zip(*lists, strict=True))
    for of_group in dict.fromkeys(names):
        chosen = np.flatnonzero([name == of_group for name in names])
        yield tuple(map(group_label, grouping, of_group)), chosen


def _listed(values: Array) -> list[Any]:
    """Return a list of numbers or texts that look as in single events: floats keep their precision."""
    return list(values) if values.dtype.kind == "f" else values.tolist()


def event_columns(
    topics: Iterable[type],
    happened_groups: Iterable[GroupKey],
    events_of: Callable[[GroupKey], Happened],
    n_steps: Array,
) -> dict[StatKey, StatColumn]:
    """Compute the statistics of the events of n ended episodes.

    Args:
        topics: Topics whose statistics each episode has, also if none of their events happened.
        happened_groups: Groups of events that happened in any episode.
        events_of: Returns the events of such a group.
        n_steps: [n] environment steps of the episodes.
    """
    columns: dict[StatKey, StatColumn] = {}
    known = set(happened_groups)
    groups = list(happened_groups)
    for topic in topics:
        for declaration in declarations(topic).values():
            ungrouped: GroupKey = (topic, declaration.name, ())
            if not declaration.grouping and ungrouped not in known:
                groups.append(ungrouped)
    for group in groups:
        topic, event, labels = group
        declaration = declarations(topic)[event]
        if group in known:
            happened = events_of(group)
        else:
            none = np.zeros(len(n_steps), np.int64)
            happened = Happened(none, none[:0], {name: np.zeros(0) for name in inputs_of(declaration)})
        events = GroupedEvents(declaration, *happened, n_steps)
        for name, column in events.statistics().items():
            key = (topic_name(topic), event, name, labels)
            columns[key] = _restricted(column, np.flatnonzero(happened.counts)) if labels else column
    return {key: column for key, column in columns.items() if len(column.episodes)}


def inputs_of(declaration: EventDeclaration) -> tuple[str | None, ...]:
    """Return the inputs of the step statistics, without those that only count events."""
    return tuple(dict.fromkeys(s.input_name for s in declaration.step if s.reduce is not len))


def column_of(event: ArrayEvent, name: str | None, chosen: Array | None) -> Array:
    """Return the values of an attribute of events [n, ...]; objects if all attributes are the input."""
    n_events = len(event.which)
    if name is None:
        column = np.empty(n_events, object)
        for place in range(n_events):
            column[place] = {attribute: _entry(value, place) for attribute, value in event.attributes.items()}
    else:
        value = event.attributes[name]
        if isinstance(value, np.ndarray) and value.ndim:
            column = value
        else:
            column = np.broadcast_to(np.asarray(value), (n_events, *np.shape(value)))
        if column.ndim == 1 and column.dtype.kind in "iuf":  # as Python's numbers
            column = column.astype(np.float64 if column.dtype.kind == "f" else np.int64)
    return column if chosen is None else column[chosen]


def _entry(value: Any, place: int) -> Any:
    """Value of one of several events."""
    return value[place] if isinstance(value, np.ndarray) and value.ndim else value


def _restricted(column: StatColumn, having: Array) -> StatColumn:
    """Column of those episodes only in which an event happened, although others have zeros."""
    if len(having) == len(column.episodes):
        return column
    kept = np.isin(column.episodes, having)
    if column.counts is None:
        return StatColumn(column.episodes[kept], column.values[kept])
    values = column.values[np.repeat(kept, column.counts)]
    return StatColumn(column.episodes[kept], values, column.counts[kept])
