"""Arrays and random streams in the attributes of an object, and in its lists, tuples, dicts and deques."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams

VALUES: Final = (bool, int, float, complex, str, bytes, np.generic, Enum, type(None))
"""Classes of numbers, texts and other values that nothing changes in place."""

GENERATORS: Final = (np.random.Generator, np.random.RandomState, random.Random)
"""Random generators of one stream."""

MOST_ENTRIES: Final = 20_000
"""Number of entries of an attribute that are read, and of a container that are copied."""

_PLAIN: Final = frozenset({bool, int, float, str, type(None)})  # frequent values, passed over quickly
_CONTAINERS: Final = (dict, list, tuple, deque)
_SETS: Final = (set, frozenset)
_FIXED: Final = (tuple, frozenset)
_NOTES: Final = ("_given_arrays", "given_containers")  # of `ArrayEnv`
_UNSET: Final = object()


class NestedValue(NamedTuple):
    """A value in a list, a tuple, a dict or a deque.

    Attributes:
        name: Names of the attribute and of the places in the containers, with dots, such as `levels.0`.
        value: The value.
        container: The innermost container.
        place: Index or key of the value in it.
    """

    name: str
    value: Any
    container: Any
    place: Any

    def replace(self, value: Any) -> None:
        """Put another value in its place.

        Raises:
            TypeError: The container is a tuple.
        """
        self.container[self.place] = value


def nested_values(attributes: Mapping[str, Any]) -> Iterator[NestedValue]:
    """Yield the arrays, tensors and random streams in the containers among some attributes.

    A container that is met several times counts once.

    Args:
        attributes: Name -> value.

    Raises:
        ValueError: Two values have the same name, as under the keys 1 and `"1"` of a dict.
    """
    kinds = (*array_types(), RandomStreams)
    seen: set[int] = set()
    names: set[str] = set()
    waiting = [(name, value) for name, value in attributes.items() if isinstance(value, _CONTAINERS)][::-1]
    while waiting:
        prefix, container = waiting.pop()
        if id(container) in seen:
            continue
        seen.add(id(container))
        inner = []
        entries = container.items() if isinstance(container, dict) else enumerate(container)
        for place, value in entries:
            if type(value) in _PLAIN:
                continue
            if isinstance(value, kinds):
                name = f"{prefix}.{place}"
                if name in names:
                    remedy = "use keys that differ as texts"
                    raise ValueError(f"two arrays or random streams of the state have the name {name!r}; {remedy}")
                names.add(name)
                yield NestedValue(name, value, container, place)
            elif isinstance(value, _CONTAINERS):
                inner.append((f"{prefix}.{place}", value))
        waiting += inner[::-1]


def attributes_of(env: object) -> dict[str, Any]:
    """Return the attributes of an array environment, without its notes of what existed earlier."""
    return {name: value for name, value in vars(env).items() if name not in _NOTES}


def random_streams_of(owner: object) -> dict[str, RandomStreams]:
    """Return the `RandomStreams` that are attributes of an object, or lie in its containers, by name."""
    attributes = attributes_of(owner)
    streams = {name: value for name, value in attributes.items() if isinstance(value, RandomStreams)}
    for nested in nested_values(attributes):
        if isinstance(nested.value, RandomStreams):
            streams[nested.name] = nested.value
    return streams


def array_types() -> tuple[type, ...]:
    """Return the classes of arrays, including tensors of torch if it is imported."""
    torch = sys.modules.get("torch")
    return (np.ndarray,) if torch is None else (np.ndarray, torch.Tensor)


def is_container(value: Any) -> bool:
    """True for lists, tuples, dicts, deques and sets."""
    return isinstance(value, (*_CONTAINERS, *_SETS))


def is_changeable(value: Any) -> bool:
    """True for containers except tuples and frozen sets."""
    return is_container(value) and not isinstance(value, _FIXED)


def parts_of(value: Any) -> Mapping[Any, Any]:
    """Return the first entries of a container, or attributes by name; none of classes and modules."""
    if isinstance(value, dict):
        return value if len(value) <= MOST_ENTRIES else dict(islice(value.items(), MOST_ENTRIES))
    if is_container(value):
        return dict(enumerate(islice(value, MOST_ENTRIES)))
    if isinstance(value, type | ModuleType):
        return {}
    attributes: dict[Any, Any] = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        for slot in names:
            is_private = slot.startswith("__") and not slot.endswith("__")
            part = getattr(value, f"_{kind.__name__.lstrip('_')}{slot}" if is_private else slot, _UNSET)
            if part is not _UNSET and not slot.endswith("__"):
                attributes[slot] = part
    return attributes


def walked(
    attributes: Mapping[str, Any], skipped: tuple[type, ...] = ()
) -> Iterator[tuple[str, Any, Mapping[Any, Any]]]:
    """Yield all objects that are reached from some attributes, once, except numbers and texts.

    Of each attribute, only the first 20,000 entries are read.

    Args:
        attributes: Name -> value.
        skipped: Classes of objects that are left out, with all that is reached from them only.

    Yields:
        Name, with dots; value; its entries or attributes, none of arrays and random generators.
    """
    left_out = (*VALUES, *skipped)
    indivisible = (*array_types(), RandomStreams, *GENERATORS)
    seen: set[int] = set()
    for attribute, held in attributes.items():
        n_left = MOST_ENTRIES
        waiting = [(attribute, held)]
        while waiting and n_left > 0:
            name, value = waiting.pop()
            if id(value) in seen or isinstance(value, left_out):
                continue
            seen.add(id(value))
            parts = {} if isinstance(value, indivisible) else parts_of(value)
            n_left -= 1 + len(parts)
            yield name, value, parts
            for part, child in parts.items():
                if not isinstance(child, VALUES):
                    waiting.append((f"{name}.{part}", child))


def holds_values_only(value: Any) -> bool:
    """True for a small container of nothing but numbers, texts and such containers."""
    if not is_container(value):
        return False
    n_entries = 0
    waiting = [value]
    while waiting:
        container = waiting.pop()
        n_entries += len(container)
        if n_entries > MOST_ENTRIES:
            return False
        entries = [*container, *container.values()] if isinstance(container, dict) else container
        for entry in entries:
            if is_container(entry):
                waiting.append(entry)
            elif not isinstance(entry, VALUES):
                return False
    return True
