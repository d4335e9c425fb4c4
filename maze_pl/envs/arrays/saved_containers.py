"""Lists, dicts and other containers of numbers and texts in the state that checkpoints hold."""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np

from maze_pl.envs.arrays.nested_arrays import (
    attributes_of,
    holds_values_only,
    is_changeable,
    is_container,
    walked,
)

SAVED_CONTAINERS: Final = "containers of values"
"""Their place in the state of an environment; attributes cannot have this name."""

GIVEN: Final = "given"
"""First entry of a list that stands for a container or an array that existed before `allocate`; then its name."""

_LOGGER: Final = logging.getLogger(__name__)
_VALUES: Final = (bool, int, float, str, type(None))
_ENTRIES: Final = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_NUMPY: Final = "numpy"
_LARGEST_NUMBER: Final = 8  # bytes of a number of NumPy that Python's numbers hold exactly


def given_containers(owner: object, base: type) -> dict[str, Any]:
    """Return the containers of values that an object holds, and constants of its classes and modules.

    Args:
        owner: The object.
        base: The class whose derived classes and their modules are read.

    Returns:
        Name -> container: each in an attribute or a constant once, and each attribute.
    """
    found = {}
    attributes = attributes_of(owner)
    for name, value, _ in walked(attributes, (base,)):
        if _is_distinct(value) and holds_values_only(value):
            found[name] = value
    # those that the walk has not met under this name
    found |= {name: value for name, value in attributes.items() if holds_values_only(value)}
    for kind in type(owner).__mro__:
        if kind in base.__mro__:
            continue
        module = kind.__module__
        constants = {**(vars(sys.modules[module]) if module in sys.modules else {}), **vars(kind)}
        tables = {f"{module}:{name}": value for name, value in constants.items()}
        tables = {name: value for name, value in tables.items() if holds_values_only(value)}
        found |= {name: value for name, value, _ in walked(tables) if _is_distinct(value)}
    return found


def _is_distinct(value: Any) -> bool:
    """True for a container; not for the empty tuple, which is the same object everywhere."""
    return is_changeable(value) or (is_container(value) and len(value) > 0)


def own_containers(owner: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are containers of values which `allocate` or later code has put in place.

    Cached properties are left out.

    Args:
        owner: The object that has the attributes.
        given: Result of `given_containers`.
    """
    own = {}
    for name, value in attributes_of(owner).items():
        is_replaced = given.get(name) is not value
        if is_replaced and not is_cached(owner, name) and holds_values_only(value):
            own[name] = value
    return own


def options_in_place(owner: object, given: Mapping[str, Any]) -> set[str]:
    """Return the names of the attributes that hold the containers that they held before `allocate`.

    Args:
        owner: The object that has the attributes.
        given: Result of `given_containers`.
    """
    return {name for name, container in given.items() if vars(owner).get(name) is container}


def given_names(given: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of given containers, or arrays, by their ids, of each the first one.

    They are not kept, as the ids differ in a copy of the environment.

    Args:
        given: Name -> container or array.
    """
    names: dict[int, str] = {}
    for name, container in given.items():
        names.setdefault(id(container), name)
    return names


def _names_of_chosen(containers: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the given containers that are saved by name.

    Tuples and frozen sets of values of Python are saved by content: equal ones may be one object
    without any relation.

    Args:
        containers: Name -> container of values.
        given: Result of `given_containers`.

    Returns:
        Name -> name of the given container.
    """
    names = given_names(given)
    chosen = {}
    for name, container in containers.items():
        if id(container) not in names:
            continue
        parts = _parts(container)
        is_fixed = all(_is_exact(part) and not is_changeable(part) for part in parts)
        if not is_fixed:
            chosen[name] = names[id(container)]
    return chosen


def is_cached(owner: object, name: str) -> bool:
    """True for the name of a cached property."""
    return isinstance(getattr(type(owner), name, None), cached_property)


def why_not_saved(containers: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the containers of values that cannot be saved exactly.

    Args:
        containers: Name -> container of values.
        given: Result of `given_containers`.

    Returns:
        Name -> reason, such as `is or has a Counter`.
    """
    reasons: dict[str, str] = {}
    changeable: dict[str, list[int]] = {}
    chosen = _names_of_chosen(containers, given)
    for name, container in containers.items():
        if name in chosen:
            continue
        parts = list(_parts(container))
        changeable[name] = [id(part) for part in parts if is_changeable(part)]
        foreign = next((type(part).__name__ for part in parts if not _is_exact(part)), None)
        if foreign is not None:
            reasons[name] = f"is or has a {foreign}"
    n_places = Counter(one for ids in changeable.values() for one in ids)
    given_ids = given_names(given).keys()
    for name, ids in changeable.items():
        if not given_ids.isdisjoint(ids):
            reasons[name] = "has a container that existed before allocate"
        elif any(n_places[one] > 1 for one in ids):
            reasons[name] = "lies in two places, or has a container that does"
    return reasons


def _is_exact(part: Any) -> bool:
    """True for containers and values of classes of Python, and for numbers of NumPy."""
    if isinstance(part, np.generic):
        return part.dtype.kind in "biuf" and part.dtype.itemsize <= _LARGEST_NUMBER
    return type(part) in (*_VALUES, dict, deque, *_ENTRIES.values())


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


def described(containers: Mapping[str, Any], options: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Describe containers by their content, or by the name of a container that existed before `allocate`.

    Args:
        containers: Name -> container of values, which can be saved exactly.
        options: Result of `options_in_place`.
        given: Result of `given_containers`.
    """
    chosen = _names_of_chosen(containers, given)
    descriptions: dict[str, Any] = {name: [GIVEN, name] for name in sorted(options)}
    for name, container in containers.items():
        descriptions[name] = [GIVEN, chosen[name]] if name in chosen else packed(container)
    return descriptions


def packed(value: Any) -> Any:
    """Describe a container by lists that start with its kind; Python's values stay as they are."""
    if isinstance(value, np.generic):
        return [_NUMPY, value.dtype.str, value.item()]
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
    if kind == _NUMPY:
        return np.dtype(entries[0]).type(entries[1])
    if kind == "deque":
        return deque(map(unpacked, entries[1:]), maxlen=entries[0])
    if kind == "dict":
        return dict(zip(map(unpacked, entries[0]), map(unpacked, entries[1]), strict=True))
    return _ENTRIES[kind](map(unpacked, entries))


class ContainersInPlace:
    """Writes saved content into present containers, so that objects that hold these see it.

    Each present container is written once at most, and given ones are not: a saved container takes
    their place. A saved container in two places becomes one in two places.

    Args:
        given: Containers that existed before `allocate`.
    """

    def __init__(self, given: Collection[Any]) -> None:
        self._taken = {id(container) for container in given}
        # id of a saved container -> the container, so that its id stays in use, and the result
        self._filled: dict[int, tuple[Any, Any]] = {}

    def put(self, container: Any, saved: Any) -> Any:
        """Return a container with the content of a saved one: if possible, the present one.

        Args:
            container: The present one, or something else.
            saved: The saved one, which is not read later.
        """
        if not is_changeable(saved):
            return saved
        if id(saved) in self._filled:
            return self._filled[id(saved)][1]
        if id(saved) in self._taken:
            return saved  # a given one
        is_kept = type(container) is type(saved) and id(container) not in self._taken
        if is_kept and isinstance(saved, deque):
            is_kept = container.maxlen == saved.maxlen
        target = container if is_kept else saved
        self._taken.add(id(target))
        self._filled[id(saved)] = saved, target
        if isinstance(saved, dict):
            present = container if is_kept else {}
            named = {key: self.put(present.get(key), entry) for key, entry in saved.items()}
            target.clear()
            target.update(named)
        elif isinstance(saved, set):
            entries = list(saved)
            target.clear()
            target.update(entries)
        else:
            has_places = is_kept and len(container) == len(saved)
            present_entries = list(container) if has_places else [None] * len(saved)
            entries = list(map(self.put, present_entries, list(saved)))
            target.clear()
            target.extend(entries)
        return target


def restore_containers(
    owner: object,
    descriptions: Mapping[str, Any],
    present: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
    """Restore the attributes that are containers of values, and warn of those that were not saved.

    An attribute that the descriptions lack stays as it is.

    Args:
        owner: The object that has the attributes.
        descriptions: Result of `described`; none in states of earlier versions.
        present: Those that would be saved now.
        given: Result of `given_containers`.
    """
    of_class = f"the saved state of {type(owner).__name__}"
    lacking = sorted(present.keys() - descriptions.keys())
    if lacking:
        unknown = ", ".join(map(repr, lacking[:3]))
        _LOGGER.warning(f"{of_class} holds nothing of {unknown}, which stays as it is")
    in_place = ContainersInPlace(given.values())
    for name, description in descriptions.items():
        if description[0] != GIVEN:
            setattr(owner, name, in_place.put(vars(owner).get(name), unpacked(description)))
        elif description[1] in given:
            setattr(owner, name, given[description[1]])
        elif description[1] != name or name in present:  # an option may be something else now
            came = f"{of_class} has {description[1]!r} as {name!r}"
            _LOGGER.warning(f"{came}, but there is no such container now: {name!r} stays as it is")
