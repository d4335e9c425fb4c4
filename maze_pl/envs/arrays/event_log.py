"""Events that many environments fire, by group and episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maze_pl.envs.arrays.event_columns import Happened, Labels, inputs_of
from maze_pl.envs.arrays.event_values import common_dtype, narrowed, objects_of
from maze_pl.envs.arrays.row_blocks import RowBlocks
from maze_pl.envs.structured_env import Array
from maze_pl.events.event_names import topic_name
from maze_pl.events.topics import EventDeclaration

_RUN, _STEP, _GROUP = "run", "step", "group"
_FEW_LABELS = 64


class EventLog:
    """Events of one kind in the episodes of N environments; its size follows the most events that it has held.

    Reading and forgetting the events of ended episodes does not touch those of running ones, except for
    values that are objects: they become numbers again once all of one kind are left.

    Args:
        declaration: Declaration of the event.
        n_envs: Number of environments.
    """

    def __init__(self, declaration: EventDeclaration, n_envs: int) -> None:
        self._declaration = declaration
        self._n_envs = n_envs
        self._inputs = {f"value {name}": name for name in inputs_of(declaration)}
        self._clear()

    def _clear(self) -> None:
        """Forget all events."""
        self._blocks = RowBlocks(self._n_envs)
        self._columns: dict[str, Array] = {}
        self._length = 0
        self._labels: dict[Labels, int] = {}
        self._most_labels = _FEW_LABELS  # before those without events are forgotten

    def __len__(self) -> int:
        return self._length

    def append(
        self,
        groups: Sequence[Labels],
        group: Array,
        envs: Array,
        steps: Array,
        values: Mapping[str | None, Array],
    ) -> None:
        """Add events to the running episodes.

        Args:
            groups: Groups that occur.
            group: [n] position of the group of each event among them.
            envs: [n] environment of each event.
            steps: [n] environment step in the episode.
            values: Input of the step statistics -> [n, ...] its values.
        """
        numbers = np.array([self._labels.setdefault(labels, len(self._labels)) for labels in groups])
        rows = self._blocks.take(envs)
        self._write(_STEP, rows, steps)
        self._write(_GROUP, rows, numbers[group])
        for column, name in self._inputs.items():
            self._write(column, rows, values[name])
        self._length += len(rows)

    def _write(self, name: str, rows: Array, values: Array) -> None:
        """Write values to rows of a column; it becomes one of objects if nothing else holds them."""
        if values.dtype.kind == "U":
            values = objects_of(values)  # an array has room for the longest text in each row
        column = self._columns.get(name)
        if column is None:
            column = np.zeros((0, *values.shape[1:]), values.dtype)
        dtype = common_dtype(column, values)
        if dtype is None:
            column = objects_of(column)
            values = objects_of(values)
        elif dtype != column.dtype:
            column = column.astype(dtype)
        if len(column) < self._blocks.n_rows:
            grown = np.zeros((self._blocks.n_rows, *column.shape[1:]), column.dtype)
            grown[: len(column)] = column
            column = grown
        column[rows] = values
        self._columns[name] = column

    def end_episodes(self, envs: Array, first_place: int) -> None:
        """End the running episodes of environments [n]; see `RowBlocks.end_episodes`."""
        self._blocks.end_episodes(envs, first_place)

    def drop_running(self, envs: Array) -> None:
        """Forget the events of the running episodes of environments [n]."""
        self._length -= int(self._blocks.counts[envs].sum())
        self._forget(self._blocks.drop_running(envs))

    def happened(self, rank: Array) -> dict[Labels, Happened]:
        """Return the events of the ended episodes by group, sorted by episode; within one, in the order of firing.

        Args:
            rank: [R] position of each ended episode in the result, in the order in which they have ended.
        """
        rows, position = self._blocks.ended(rank)
        if not len(rows):
            return {}
        group = self._columns[_GROUP][rows]
        if len(self._labels) > 1:
            order = _order_of(group)
            rows, position, group = rows[order], position[order], group[order]
        counts = np.bincount(group)
        ends = np.cumsum(counts)
        steps = self._columns[_STEP][rows]
        values = {name: self._columns[column][rows] for column, name in self._inputs.items()}
        labels = list(self._labels)
        result: dict[Labels, Happened] = {}
        for number in np.flatnonzero(counts).tolist():
            part = slice(ends[number] - counts[number], ends[number])
            of_group = {name: narrowed(column[part]) for name, column in values.items()}
            result[labels[number]] = Happened.of(position[part], steps[part], of_group)
        return result

    def drop_ended(self) -> None:
        """Forget the events of the ended episodes."""
        rows = self._blocks.free_ended()
        self._length = int(self._blocks.counts.sum())
        self._forget(rows)
        self._narrow()
        if len(self._labels) > max(self._most_labels, self._length // 8):
            self._forget_labels()

    def _forget(self, rows: Array) -> None:
        """Forget the objects in rows, and the types of all values if no events are left."""
        if not self._length:
            self._columns = {}
            return
        for column in self._columns.values():
            if column.dtype == object:
                column[rows] = None

    def _narrow(self) -> None:
        """Store numbers as such again where the objects that differed from them are gone."""
        names = [name for name, column in self._columns.items() if column.dtype == object]
        if not names:
            return
        rows, _ = self._blocks.running()
        for name in names:
            column = self._columns[name]
            values = column[rows]
            if type(values[0]) is str:  # which remain objects
                continue
            values = narrowed(values)
            if values.dtype != object:
                narrow = np.zeros((len(column), *values.shape[1:]), values.dtype)
                narrow[rows] = values
                self._columns[name] = narrow

    def _forget_labels(self) -> None:
        """Forget the labels of groups without events; call it when no ended episode is waiting."""
        if not self._length:
            self._labels = {}
            self._most_labels = _FEW_LABELS
            return
        rows, _ = self._blocks.running()
        group = self._columns[_GROUP]
        has_events = np.bincount(group[rows], minlength=len(self._labels)) > 0
        new_numbers = np.cumsum(has_events) - 1
        group[rows] = new_numbers[group[rows]]
        kept = [labels for labels, number in self._labels.items() if has_events[number]]
        self._labels = {labels: number for number, labels in enumerate(kept)}
        self._most_labels = max(_FEW_LABELS, 2 * len(kept))

    def state_dict(self) -> dict[str, Any]:
        """Return the events of the running episodes; call it when no ended episode is waiting."""
        self._forget_labels()
        rows, envs = self._blocks.running()
        columns = {column: narrowed(values[rows]) for column, values in self._columns.items()}
        columns[_RUN] = envs
        return {"labels": [list(labels) for labels in self._labels], "columns": columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`.

        Raises:
            ValueError: The values of an input are missing.
        """
        columns = {column: np.asarray(values) for column, values in state["columns"].items()}
        groups = [tuple(labels) for labels in state["labels"]]
        values = self._saved_values(columns)
        self._clear()
        self.append(groups, columns[_GROUP], columns[_RUN], columns[_STEP], values)

    def load_rows(self, labels: Labels, state: Mapping[str, Any]) -> None:
        """Add the events of one group from a checkpoint of version 0.2 or earlier.

        Args:
            labels: The group.
            state: `counts`, [N] number of events of each environment, and `columns`, their values, one environment
                after the other.

        Raises:
            ValueError: The values of an input are missing.
        """
        columns = {column: np.asarray(values) for column, values in state["columns"].items()}
        envs = np.repeat(np.arange(self._n_envs), np.asarray(state["counts"]))
        group = np.zeros(len(envs), np.int64)
        self.append([labels], group, envs, columns[_STEP], self._saved_values(columns))

    def _saved_values(self, columns: Mapping[str, Array]) -> dict[str | None, Array]:
        """Return the values of the inputs in a checkpoint, without those of earlier inputs.

        Raises:
            ValueError: Those of an input are missing.
        """
        for column, name in self._inputs.items():
            if column not in columns:
                topic = topic_name(self._declaration.topic)
                missing = "all attributes together" if name is None else repr(name)
                event = f"the event {self._declaration.name!r} of {topic}"
                fault = f"the saved statistics of {event} have no values of {missing}"
                raise ValueError(f"{fault}; resume with the code that saved it")
        return {name: columns[column] for column, name in self._inputs.items()}


def _order_of(numbers: Array) -> Array:
    """Positions of numbers from 0 on, [n], sorted; of equal ones in their order."""
    if len(numbers) and numbers.max() <= np.iinfo(np.uint16).max:  # sorted in linear time
        numbers = numbers.astype(np.uint16)
    return np.argsort(numbers, kind="stable")
