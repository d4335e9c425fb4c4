"""Events that many environments fire, in the order in which they were fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maze_pl.envs.arrays.event_columns import Happened, Labels, inputs_of
from maze_pl.envs.arrays.event_values import as_one_kind, narrowed
from maze_pl.envs.structured_env import Array
from maze_pl.events.topics import EventDeclaration

_FIRST_CAPACITY = 64
_RUN, _STEP, _GROUP = "run", "step", "group"


class EventLog:
    """Events of one kind in the episodes of N environments; its size is that of the events.

    An episode is known by a number, its run. After `keep_running`, the run of an environment's running episode is
    the number of the environment.

    Args:
        declaration: Declaration of the event.
    """

    def __init__(self, declaration: EventDeclaration) -> None:
        self._inputs = {f"value {name}": name for name in inputs_of(declaration)}
        self._clear()

    def _clear(self) -> None:
        """Forget all events."""
        self._labels: dict[Labels, int] = {}
        self._columns: dict[str, Array] = {}  # rows that are not in use yet come last
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(
        self, groups: Sequence[Labels], group: Array, run: Array, step: Array, values: Mapping[str | None, Array]
    ) -> None:
        """Add events.

        Args:
            groups: Groups that occur.
            group: [n] position of the group of each event among them.
            run: [n] number of the episode.
            step: [n] environment step in the episode.
            values: Input of the step statistics -> [n, ...] its values.
        """
        numbers = np.array([self._labels.setdefault(labels, len(self._labels)) for labels in groups])
        columns = {_RUN: run, _STEP: step, _GROUP: numbers[group]}
        columns |= {column: values[name] for column, name in self._inputs.items()}
        for column, array in columns.items():
            self._columns[column] = _extended(self._columns.get(column, array[:0]), self._length, array)
        self._length += len(run)

    def _column(self, column: str) -> Array:
        """Return the rows of a column that are in use."""
        return self._columns[column][: self._length]

    def happened(self, position_of_run: Array) -> dict[Labels, Happened]:
        """Return the events of some episodes by group.

        Args:
            position_of_run: [R] position of each run among these episodes, -1 if it is another one.
        """
        if not self._length:
            return {}
        position = position_of_run[self._column(_RUN)]
        events = np.flatnonzero(position >= 0)
        events = events[_order_of(position[events])]
        group = self._column(_GROUP)[events]
        if len(self._labels) > 1:
            order = _order_of(group)
            events, group = events[order], group[order]
        ends = np.cumsum(np.bincount(group, minlength=len(self._labels)))
        position, step = position[events], self._column(_STEP)[events]
        values = {name: self._column(column)[events] for column, name in self._inputs.items()}
        result: dict[Labels, Happened] = {}
        first = 0
        for labels, end in zip(self._labels, ends.tolist(), strict=True):
            if end > first:
                part = slice(first, end)
                of_group = {name: narrowed(column[part]) for name, column in values.items()}
                result[labels] = Happened.of(position[part], step[part], of_group)
            first = end
        return result

    def keep_running(self, env_of_run: Array) -> None:
        """Forget the events of all episodes but the running ones.

        Args:
            env_of_run: [R] environment whose running episode has this number, -1 if it is not running.
        """
        if not self._length:
            return
        env = env_of_run[self._column(_RUN)]
        kept = np.flatnonzero(env >= 0)
        columns = {column: narrowed(self._column(column)[kept]) for column in self._columns}
        numbers, columns[_GROUP] = np.unique(columns[_GROUP], return_inverse=True)
        columns[_RUN] = env[kept]
        labels = list(self._labels)
        self._clear()
        if len(kept):
            self._labels = {labels[number]: place for place, number in enumerate(numbers.tolist())}
            self._columns = columns
            self._length = len(kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the events; call it after `keep_running`."""
        columns = {column: self._column(column).copy() for column in self._columns}
        return {"labels": [list(labels) for labels in self._labels], "columns": columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._clear()
        self._labels = {tuple(labels): place for place, labels in enumerate(state["labels"])}
        self._columns = {column: np.array(values) for column, values in state["columns"].items()}
        self._length = len(self._columns[_RUN])

    def load_rows(self, labels: Labels, state: Mapping[str, Any]) -> None:
        """Add the events of one group from a checkpoint of version 0.2 or earlier.

        Args:
            labels: The group.
            state: `counts`, [N] number of events of each environment, and `columns`, their values, one environment
                after the other.
        """
        counts = np.asarray(state["counts"])
        env = np.repeat(np.arange(len(counts)), counts)
        values = {name: np.asarray(state["columns"][column]) for column, name in self._inputs.items()}
        self.append([labels], np.zeros(len(env), np.int64), env, np.asarray(state["columns"][_STEP]), values)


def _order_of(numbers: Array) -> Array:
    """Positions of numbers from 0 on, [n], sorted; of equal ones in their order."""
    if len(numbers) and numbers.max() <= np.iinfo(np.uint16).max:  # sorted in linear time
        numbers = numbers.astype(np.uint16)
    return np.argsort(numbers, kind="stable")


def _extended(column: Array, length: int, more: Array) -> Array:
    """Write values after the first `length` rows of a column; return the column, or a larger one."""
    used, more = as_one_kind(column[:length], more)
    n_rows = length + len(more)
    if used.dtype != column.dtype or used.shape[1:] != column.shape[1:] or n_rows > len(column):
        capacity = max(_FIRST_CAPACITY, n_rows, 2 * len(column))
        column = np.zeros((capacity, *used.shape[1:]), used.dtype)
        column[:length] = used
    column[length:n_rows] = more
    return column
