"""Storage of the events of a rollout on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from maze_pl.envs.arrays.array_events import ArrayEvent, inputs_of
from maze_pl.events.attribute_values import copied, plain
from maze_pl.events.topics import EventDeclaration


@dataclass
class StoredEvent:
    """One of the events that are fired in each row of a rollout.

    Attributes:
        declaration: Declaration of the event and its statistics.
        fired: [R, N] bool, whether the event happened.
        attributes: Name -> [R, N, ...] its values, or a single value that counts for all and for all
            rows; only of the attributes that statistics need. A tensor with a single value is stored
            for each environment, as it may change from row to row.
    """

    declaration: EventDeclaration
    fired: Tensor
    attributes: dict[str, Any]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, by name."""
        values = {name: value for name, value in self.attributes.items() if isinstance(value, Tensor)}
        return {"fired": self.fired, **values}

    def clone(self) -> StoredEvent:
        """Copy everything."""
        values = {}
        for name, value in self.attributes.items():
            values[name] = value.clone() if isinstance(value, Tensor) else value
        return StoredEvent(self.declaration, self.fired.clone(), values)


class EventStorage:
    """Events that are fired in each row of a rollout, the same ones in the same order.

    Room is made when the first row is stored.

    Args:
        n_rows: Number of rows.
        n_envs: Number of environments N.
        occasion: Description of when they are fired, for messages.

    Attributes:
        events: The events; empty before the first row is stored.
    """

    def __init__(self, n_rows: int, n_envs: int, occasion: str) -> None:
        self.events: list[StoredEvent] = []
        self._n_rows = n_rows
        self._n_envs = n_envs
        self._occasion = occasion
        self._is_known = False

    def store(self, row: Tensor, fired: Sequence[ArrayEvent]) -> None:
        """Store the events of a row.

        Args:
            row: [1] int64, the row.
            fired: The events.

        Raises:
            ValueError: They are not those of the rows before, or have other shapes or types, or
                single values have changed.
        """
        if not self._is_known:
            self.events = [self._room_for(event) for event in fired]
            self._is_known = True
        expected = [event.declaration for event in self.events]
        found = [event.declaration for event in fired]
        if found != expected:
            for event in fired:
                self._require_flags(event)
            names = ", ".join(_name(declaration) for declaration in found) or "none"
            earlier = ", ".join(_name(declaration) for declaration in expected) or "none"
            rule = "each time the same events must be fired, for the environments in which they happen"
            raise ValueError(f"{self._occasion} fired the events {names}, but previously {earlier}; {rule}")
        for stored, event in zip(self.events, fired, strict=True):
            self._require_flags(event)
            stored.fired.index_copy_(0, row, event.which[None])
            for name, values in stored.attributes.items():
                _require_same(values, event, name)
                if isinstance(values, Tensor):
                    values.index_copy_(0, row, _column_of(event, name)[None])

    def _require_flags(self, event: ArrayEvent) -> None:
        """Refuse an event that was fired for anything but flags [N]."""
        expected = "expected a tensor [N] of bool, whether the event happens in each environment"
        if not isinstance(event.which, Tensor) or event.which.dtype != torch.bool:
            came = event.which.dtype if isinstance(event.which, Tensor) else type(event.which).__name__
            raise ValueError(f"{_name(event.declaration)} was fired for {came}; {expected}")
        if event.which.shape != (self._n_envs,):
            came = f"a tensor of shape {tuple(event.which.shape)} with N = {self._n_envs}"
            raise ValueError(f"{_name(event.declaration)} was fired for {came}; {expected}")

    def _room_for(self, event: ArrayEvent) -> StoredEvent:
        """Make tensors for an event."""
        self._require_flags(event)
        needed = {*inputs_of(event.declaration), *event.declaration.grouping}
        attributes = {}
        for name, value in event.attributes.items():
            if name in needed or None in needed:
                if isinstance(value, Tensor):
                    attributes[name] = value.new_zeros((self._n_rows, *_column_of(event, name).shape))
                else:
                    _refuse_tensors_within(value, f"{name} of {_name(event.declaration)}")
                    attributes[name] = copied(value)
        return StoredEvent(event.declaration, event.which.new_zeros((self._n_rows, self._n_envs)), attributes)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all tensors that are written, by name."""
        tensors = {}
        for place, event in enumerate(self.events):
            for name, tensor in event.tensors().items():
                tensors[f"event {place} of {self._occasion}: {name}"] = tensor
        return tensors


def _require_same(stored: Any, event: ArrayEvent, name: str) -> None:
    """Refuse values of another shape or type than those before, and single values that have changed.

    Args:
        stored: [R, N, ...] room for the values of all rows, or the single value that was stored.
        event: The event.
        name: Name of the attribute.
    """
    value = event.attributes[name]
    what = f"{name} of {_name(event.declaration)}"
    if isinstance(stored, Tensor) and isinstance(value, Tensor):
        shape = tuple(_column_of(event, name).shape)
        if shape != tuple(stored.shape[1:]):
            raise ValueError(f"{what} has shape {shape}, but previously {tuple(stored.shape[1:])}")
        if value.dtype != stored.dtype:
            raise ValueError(f"{what} has type {value.dtype}, but previously {stored.dtype}")
        return
    if isinstance(stored, Tensor) or isinstance(value, Tensor) or not _is_same(stored, value):
        before, now = ("a tensor" if isinstance(one, Tensor) else repr(plain(one)) for one in (stored, value))
        raise ValueError(f"{what} is {now}, but was {before} before; give values that change as a tensor [N, ...]")


def _refuse_tensors_within(value: Any, what: str) -> None:
    """Refuse tensors in a tuple or a dict, as each comparison of their numbers would wait for the device."""
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
        raise TypeError(f"{what} is a {type(value).__name__} with a tensor; expected a tensor [N, ...] or numbers")


def _is_same(first: Any, second: Any) -> bool:
    """True for equal values of the same type; NaN equals NaN, and numbers of NumPy equal those of Python."""
    first, second = plain(first), plain(second)
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_is_same(part, second[key]) for key, part in first.items())
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, np.ndarray):  # within a dict, a tuple or a list
        has_nan = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return bool(np.array_equal(first, second, equal_nan=has_nan))
    are_nan = first != first and second != second
    return bool(first == second or are_nan)


def _column_of(event: ArrayEvent, name: str) -> Tensor:
    """Return the tensor of an attribute with an entry for each environment [N, ...]."""
    value: Tensor = event.attributes[name]
    return value if value.dim() else value.expand(len(event.which))


def _name(declaration: EventDeclaration) -> str:
    return f"{declaration.topic.__name__}.{declaration.name}"
