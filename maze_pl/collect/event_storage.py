"""Storage of the events of a rollout on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.arrays.event_columns import inputs_of
from maze_pl.events.topics import EventDeclaration


@dataclass
class StoredEvent:
    """One of the events that are fired in each row of a rollout.

    Attributes:
        declaration: Declaration of the event and its statistics.
        fired: [R, N] bool, whether the event happened.
        attributes: Name -> [R, N, ...] its values, or a single value that counts for all; only of the
            attributes that statistics need.
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
        occasion: Description of when they are fired, for messages.

    Attributes:
        events: The events; empty before the first row is stored.
    """

    def __init__(self, n_rows: int, occasion: str) -> None:
        self.events: list[StoredEvent] = []
        self._n_rows = n_rows
        self._occasion = occasion
        self._is_known = False

    def store(self, row: Tensor, fired: Sequence[ArrayEvent]) -> None:
        """Store the events of a row.

        Args:
            row: [1] int64, the row.
            fired: The events.

        Raises:
            ValueError: They are not those of the rows before, or have other shapes.
        """
        if not self._is_known:
            self.events = [self._room_for(event) for event in fired]
            self._is_known = True
        expected = [event.declaration for event in self.events]
        found = [event.declaration for event in fired]
        if found != expected:
            names = ", ".join(_name(declaration) for declaration in found) or "none"
            earlier = ", ".join(_name(declaration) for declaration in expected) or "none"
            rule = "each time the same events must be fired, for the environments in which they happen"
            raise ValueError(f"{self._occasion} fired the events {names}, but previously {earlier}; {rule}")
        for stored, event in zip(self.events, fired, strict=True):
            stored.fired.index_copy_(0, row, event.which[None])
            for name, values in stored.attributes.items():
                if isinstance(values, Tensor):
                    values.index_copy_(0, row, event.attributes[name].to(values.dtype)[None])

    def _room_for(self, event: ArrayEvent) -> StoredEvent:
        """Make tensors for an event."""
        if not isinstance(event.which, Tensor) or event.which.dtype != torch.bool:
            came = event.which.dtype if isinstance(event.which, Tensor) else type(event.which).__name__
            expected = "expected a tensor [N] of bool, whether the event happens in each environment"
            raise ValueError(f"{_name(event.declaration)} was fired for {came}; {expected}")
        needed = {*inputs_of(event.declaration), *event.declaration.grouping}
        attributes = {}
        for name, value in event.attributes.items():
            if name in needed or None in needed:
                is_column = isinstance(value, Tensor) and value.dim() > 0
                attributes[name] = value.new_zeros((self._n_rows, *value.shape)) if is_column else value
        return StoredEvent(event.declaration, event.which.new_zeros((self._n_rows, len(event.which))), attributes)

    def tensors(self) -> Mapping[str, Tensor]:
        """Return all tensors that are written, by name."""
        tensors = {}
        for place, event in enumerate(self.events):
            for name, tensor in event.tensors().items():
                tensors[f"event {place} of {self._occasion}: {name}"] = tensor
        return tensors


def _name(declaration: EventDeclaration) -> str:
    return f"{declaration.topic.__name__}.{declaration.name}"
