"""Lists, dicts and other containers of numbers and texts in the state that checkpoints hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from maze_pl.envs.arrays.nested_arrays import holds_values_only, is_container

SAVED_CONTAINERS: Final = "containers of values"
"""Their place in the state of an environment; attributes cannot have this name."""

_VALUES: Final = (bool, int, float, str, type(None))
_ENTRIES: Final = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def saved_containers(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are containers of values and can be saved exactly.

    Everything in them is of a class of Python, not of one derived from it, and no container lies in two places.

    Args:
        attributes: Name -> value.
    """
    chosen = {name: value for name, value in attributes.items() if holds_values_only(value)}
    found: dict[str, list[int]] = {}
    places: dict[int, int] = {}
    for name, value in chosen.items():
        parts = list(_parts(value))
        changeable = [id(part) for part in parts if isinstance(part, list | dict | deque | set)]
        for one in changeable:
            places[one] = places.get(one, 0) + 1
        if all(type(part) in (*_VALUES, dict, deque, *_ENTRIES.values()) for part in parts):
            found[name] = changeable
    return {name: chosen[name] for name, ids in found.items() if all(places[one] == 1 for one in ids)}


def _parts(value: Any) -> Iterator[Any]:
    """Yield a container and everything in it."""
    yield value
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _parts(key)
            yield from _parts(entry)
    elif is_container(value):
        for entry in value:
            yield from _parts(entry)


def packed(value: Any) -> Any:
    """Describe a container by lists that start with its kind; numbers and texts stay what they are."""
    if isinstance(value, deque):
        return ["deque", value.maxlen, *map(packed, value)]
    if isinstance(value, dict):
        return ["dict", [packed(key) for key in value], [packed(entry) for entry in value.values()]]
    return [type(value).__name__, *map(packed, value)] if is_container(value) else value


def unpacked(description: Any) -> Any:
    """Return the container that `packed` described."""
    if not isinstance(description, list):
        return description
    kind, *entries = description
    if kind == "deque":
        return deque(map(unpacked, entries[1:]), maxlen=entries[0])
    if kind == "dict":
        return dict(zip(map(unpacked, entries[0]), map(unpacked, entries[1]), strict=True))
    return _ENTRIES[kind](map(unpacked, entries))


def put_into(container: Any, saved: Any) -> Any:
    """Return a container with the content of a saved one: the same one if that can be changed and is of its class.

    Args:
        container: The present one, or something else.
        saved: The saved one, which is not read later.
    """
    is_fixed = not isinstance(saved, list | dict | deque | set)
    if is_fixed or type(container) is not type(saved):
        return saved
    if isinstance(saved, deque) and container.maxlen != saved.maxlen:
        return saved
    if isinstance(saved, dict):
        named = {key: put_into(container.get(key), entry) for key, entry in saved.items()}
        container.clear()
        container.update(named)
    elif isinstance(saved, set):
        container.clear()
        container.update(saved)
    else:
        entries = list(map(put_into, container, saved)) if len(container) == len(saved) else list(saved)
        container.clear()
        container.extend(entries)
    return container
