"""Arrays and random streams in the attributes of an object, and in its lists, tuples and dicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from maze_pl.envs.arrays.random_streams import RandomStreams

_CONTAINERS = (dict, list, tuple)


class NestedValue(NamedTuple):
    """A value in a list, a tuple or a dict.

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


def random_streams_of(owner: object) -> dict[str, RandomStreams]:
    """Return the `RandomStreams` that are attributes of an object, or lie in its containers, by name."""
    attributes = vars(owner)
    streams = {name: value for name, value in attributes.items() if isinstance(value, RandomStreams)}
    for nested in nested_values(attributes):
        if isinstance(nested.value, RandomStreams):
            streams[nested.name] = nested.value
    return streams


def array_types() -> tuple[type, ...]:
    """Return the classes of arrays, including tensors of torch if it is imported."""
    torch = sys.modules.get("torch")
    return (np.ndarray,) if torch is None else (np.ndarray, torch.Tensor)


def parts_of(value: Any) -> Mapping[Any, Any]:
    """Return the entries of a container, or the attributes of an object, by name; none of classes and modules."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, type | ModuleType):
        return {}
    attributes: Mapping[Any, Any] = getattr(value, "__dict__", {})
    return attributes
