"""Detection of changes in values that were read once: cheap enough to run before every update."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from inspect import getattr_static
from itertools import chain
from operator import call, is_, itemgetter
from typing import Any

import numpy as np
import torch
from torch.distributions.utils import lazy_property

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, torch.device)
"""Types of values that are compared by equality instead of identity."""


@dataclass(slots=True)
class _Place:
    """Snapshot of the entries of an object, compared by identity because that is fastest.

    Attributes:
        name: Name of the object.
        owner: The object; it has a length, which reveals new attributes that shadow others.
        keys: Names of the entries, None for all entries.
        take: Function from the owner to its entries.
        values: Values of the entries when the snapshot was taken.
        size: Length of the owner when the snapshot was taken.
    """

    name: str
    owner: Any
    keys: tuple[str, ...] | None
    take: Callable[[Any], Iterable[Any]]
    values: tuple[Any, ...]
    size: int

    def change(self) -> str | None:
        """Describe the first change; None if all values are identical, or plain and equal."""
        try:
            values = tuple(self.take(self.owner))
        except (KeyError, ValueError):  # an entry was deleted, or a cell emptied
            return f"{self.name} lost an entry"
        if len(values) != len(self.values):
            return f"{self.name} has {len(values)} entries in place of {len(self.values)}"
        for index, (before, value) in enumerate(zip(self.values, values, strict=True)):
            is_equal = type(before) is type(value) and isinstance(value, PLAIN) and before == value
            if before is not value and not is_equal:
                name = self.name if self.keys is None else f"{self.name}.{self.keys[index]}".removeprefix(".")
                return f"{name} changed from {_shown(before)} to {_shown(value)}"
        self.values, self.size = values, len(self.owner)
        return None


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"


class Watch:
    """Objects and values that a loss has read.

    Attributes:
        moves: True if some belong to the trainer or to optimisers, which change with every step.
    """

    def __init__(self) -> None:
        self.moves = False
        self._empty: list[Any] = []  # containers without entries
        self._places: list[_Place] = []
        self._entries: dict[
            int, tuple[str, Any, dict[str, Any]]
        ] = {}  # by id of a mapping: its name, the mapping, and the entries read
        self._earlier: dict[int, dict[str, Any]] = {}  # by id of a mapping: its entries before the loss ran
        self._attributes: list[tuple[Any, dict[str, Any], frozenset[str]]] = []  # objects, and names before the loss
        self._arrays: list[tuple[str, Any, bytes]] = []
        # The same places as flat lists, so that all of them are compared at once.
        self._owners: list[Any] = []
        self._takes: list[Callable[[Any], Iterable[Any]]] = []
        self._sizes: list[int] = []
        self._values: list[Any] = []

    def remember_entries(self, owner: dict[str, Any]) -> None:
        """Let `add_entry` watch the present entries of a mapping, even if some are replaced for a while.

        `torch.func.functional_call` replaces parameters while a network runs.
        """
        self._earlier[id(owner)] = dict(owner)

    def remember_names(self, owner: Any) -> None:
        """Let `added_attribute` find attributes that an object, unless it is a class, gets from now on."""
        if not isinstance(owner, type) and hasattr(owner, "__dict__"):
            self._attributes.append((owner, vars(owner), frozenset(vars(owner))))

    def added_attribute(self) -> str | None:
        """Return the name of an attribute that an object did not have before the loss ran; None if there is none."""
        for owner, attributes, names in self._attributes:
            for name in attributes.keys() - names:
                of_class = getattr_static(type(owner), name, None)
                if not isinstance(of_class, cached_property | lazy_property):
                    return f"{type(owner).__name__}.{name}"
        return None

    def add_entry(self, label: str, owner: Any, key: str) -> Any:
        """Watch an entry of a mapping, such as an attribute, and return its value."""
        entries = self._entries.setdefault(id(owner), (label, owner, {}))[2]
        return entries.setdefault(key, self._earlier.get(id(owner), owner).get(key, owner[key]))

    def add(self, label: str, owner: Any, take: Callable[[Any], Iterable[Any]]) -> None:
        """Watch all values that `take` yields for an object that has a length."""
        values = tuple(take(owner))
        if values or isinstance(owner, tuple):
            self._places.append(_Place(label, owner, None, take, values, len(owner)))
        else:
            self._empty.append(owner)

    def add_array(self, label: str, array: Any) -> None:
        """Watch the values of a NumPy array."""
        self._arrays.append((label, array, array.tobytes()))

    def complete(self) -> None:
        """Combine entries that were added one by one, so that comparing them costs less."""
        for label, owner, entries in self._entries.values():
            keys = (*entries, next(iter(entries)))  # itemgetter returns no tuple for one key
            values = tuple(entries[key] for key in keys)
            self._places.append(_Place(label, owner, keys, itemgetter(*keys), values, len(owner)))
        self._entries, self._earlier = {}, {}
        self._line_up()

    def _line_up(self) -> None:
        self._owners = [place.owner for place in self._places]
        self._takes = [place.take for place in self._places]
        self._sizes = [place.size for place in self._places]
        self._values = list(chain.from_iterable(place.values for place in self._places))

    def change(self) -> str | None:
        """Describe the first change found, None if nothing has changed."""
        if not self._is_same():
            if any(self._empty):
                return "a container that was empty has entries"
            for place in self._places:
                if (change := place.change()) is not None:
                    return change
            self._line_up()
        for label, array, content in self._arrays:
            if array.tobytes() != content:
                return f"{label} has other values"
        return None

    def _is_same(self) -> bool:
        """True if all entries are identical objects, determined without a loop in Python."""
        if any(self._empty) or list(map(len, self._owners)) != self._sizes:
            return False
        try:
            values = chain.from_iterable(map(call, self._takes, self._owners))
            return all(map(is_, values, self._values))
        except (KeyError, ValueError):  # an entry was deleted, or a cell emptied
            return False
