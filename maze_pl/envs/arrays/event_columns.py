"""Statistics of the events of many episodes, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn, consecutive
from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.arrays.array_events import inputs_of as inputs_of
from maze_pl.envs.arrays.event_values import joined_values, narrowed, objects_of
from maze_pl.envs.structured_env import Array
from maze_pl.events.array_reducing import GroupedEvents
from maze_pl.events.event_names import group_label, topic_name
from maze_pl.events.topics import declarations

Labels = tuple[str, ...]
"""Values of the grouping attributes of an event."""
GroupKey = tuple[type, str, Labels]
"""Topic, name of the event, and values of its grouping attributes."""
_LARGEST = np.iinfo(np.int64).max


class Happened(NamedTuple):
    """Events of one group in the episodes in which it happened, one episode after the other.

    Attributes:
        episodes: [h] positions of these episodes, ascending.
        counts: [h] number of events of each of them, at least 1.
        steps: [E] environment step of each event in its episode, ascending.
        values: Input of the step statistics -> [E, ...] its values.
    """

    episodes: Array
    counts: Array
    steps: Array
    values: dict[str | None, Array]

    @classmethod
    def of(cls, episode: Array, steps: Array, values: dict[str | None, Array]) -> Happened:
        """Count the events of each episode.

        Args:
            episode: [E] position of the episode of each event, ascending.
            steps: [E] environment step of each event in its episode.
            values: Input of the step statistics -> [E, ...] its values.
        """
        firsts = np.flatnonzero(np.diff(episode, prepend=-1))
        return cls(episode[firsts], np.diff(firsts, append=len(episode)), steps, values)

    @classmethod
    def joined(cls, first: Happened, second: Happened) -> Happened:
        """Join the events of one group in two sets of episodes that have none in common."""
        episodes = np.concatenate([first.episodes, second.episodes])
        counts = np.concatenate([first.counts, second.counts])
        order = np.argsort(episodes)
        places = consecutive((np.cumsum(counts) - counts)[order], counts[order])
        values = {}
        for name, column in first.values.items():
            values[name] = narrowed(joined_values([column, second.values[name]])[places])
        return cls(episodes[order], counts[order], np.concatenate([first.steps, second.steps])[places], values)


def numbered_groups(event: ArrayEvent) -> tuple[list[Labels], Array]:
    """Return the groups of events in the order of their first events, and the position of each event's group, [n]."""
    grouping = event.declaration.grouping
    values = [event.attributes[name] for name in grouping]
    n_events = len(event.which)
    if not any(isinstance(value, np.ndarray) and value.ndim for value in values):
        return [tuple(map(group_label, grouping, values))], np.zeros(n_events, np.int64)
    firsts, distinct = _first_events(values, n_events)
    number_of_label: dict[Labels, int] = {}
    numbers = np.empty(len(firsts), np.int64)
    for place, first in enumerate(firsts):
        entries = [_entry(value, first) for value in values]
        labels = tuple(map(group_label, grouping, entries))  # equal ones of different values
        numbers[place] = number_of_label.setdefault(labels, len(number_of_label))
    return list(number_of_label), numbers[distinct]


def _first_events(values: list[Any], n_events: int) -> tuple[list[int], Array]:
    """Return the first event of each combination of values, and the combination of each event, [n].

    Args:
        values: Values of the grouping attributes, [n] or one for all events.
        n_events: Number of events, n.
    """
    codes = np.zeros(n_events, np.int64)
    for value in values:
        if isinstance(value, np.ndarray) and value.ndim:
            numbers = _numbers_of(value)
            codes = codes * (int(numbers.max(initial=0)) + 1) + numbers
            _, codes = np.unique(codes, return_inverse=True)  # so that they stay small
    _, firsts, numbers = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return firsts[order].tolist(), rank[numbers]


def _numbers_of(values: Array) -> Array:
    """Return a number for each of n values, equal for equal values of the same type; less than n."""
    column = narrowed(values)
    if column.ndim == 1 and column.dtype.kind in "biufU":
        _, numbers = np.unique(column, return_inverse=True)
        return numbers
    listed = column.tolist()
    keys = zip(map(type, listed), listed, strict=True)  # 1 and True are equal, but not their labels
    number_of: dict[tuple[type, Any], int] = {}
    return np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.int64)


def event_columns(
    topics: Iterable[type], happened: Mapping[GroupKey, Happened], n_steps: Array
) -> dict[StatKey, StatColumn]:
    """Compute the statistics of the events of n ended episodes.

    Args:
        topics: Topics whose statistics each episode has, also if none of their events happened.
        happened: Events of the groups that happened in any episode.
        n_steps: [n] environment steps of the episodes.
    """
    nothing = np.zeros(0, np.int64)
    groups = dict(happened)
    for topic in topics:
        for declaration in declarations(topic).values():
            if not declaration.grouping:
                values = {name: np.zeros(0) for name in inputs_of(declaration)}
                groups.setdefault((topic, declaration.name, ()), Happened(nothing, nothing, nothing, values))
    columns: dict[StatKey, StatColumn] = {}
    for (topic, event, labels), (having, counts_of_having, steps, values) in groups.items():
        if labels:
            episodes, counts = having, counts_of_having
        else:
            episodes, counts = np.arange(len(n_steps)), np.zeros(len(n_steps), np.int64)
            counts[having] = counts_of_having
        events = GroupedEvents(declarations(topic)[event], counts, steps, values, n_steps[episodes])
        for name, column in events.statistics().items():
            if len(column.episodes):
                key = (topic_name(topic), event, name, labels)
                columns[key] = replace(column, episodes=episodes[column.episodes])
    return columns


def column_of(event: ArrayEvent, name: str | None) -> Array:
    """Return the values of an attribute of events: numbers or texts, [n, ...], or [n] other objects.

    If all attributes are the input, they are objects, too.
    """
    n_events = len(event.which)
    if name is None:
        entries = []
        for place in range(n_events):
            entries.append({attribute: _entry(value, place) for attribute, value in event.attributes.items()})
        return objects_of(entries)
    value = event.attributes[name]
    if isinstance(value, np.ndarray) and value.ndim:
        column: Array = value
    elif type(value) in (bool, int, float, str) or isinstance(value, np.generic):
        column = np.broadcast_to(np.asarray(value), n_events)
    else:
        return objects_of([value] * n_events)
    if column.ndim > 1 or column.dtype.kind not in "iuf":
        return column
    if column.dtype.kind == "f":
        return column.astype(np.float64)
    is_large = column.dtype == np.uint64 and n_events > 0 and column.max() > _LARGEST
    return column.astype(object if is_large else np.int64)  # as Python's numbers


def _entry(value: Any, place: int) -> Any:
    """Value of one of several events."""
    return value[place] if isinstance(value, np.ndarray) and value.ndim else value
