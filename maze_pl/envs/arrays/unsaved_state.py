"""Detection of arrays, generators and numbers that change during episodes, but that the state does not hold."""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.nested_arrays import (
    VALUES,
    array_types,
    attributes_of,
    holds_values_only,
    nested_values,
    parts_of,
    random_streams_of,
)
from maze_pl.envs.arrays.nested_numbers import GENERATORS, SKIPPED, nested_numbers
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.structured_env import Array

_LOGGER: Final = logging.getLogger(__name__)
_MOST_OBJECTS: Final = 20_000  # that are searched
_MOST_ENTRIES: Final = 200_000  # of these, that are read
_MOST_NUMBERS: Final = 10_000  # of an array that are compared
_NUMBERS: Final = (int, float, np.number, np.bool_)  # bool is a kind of int
_SAVED_PLACE: Final = "attribute of the environment, or keep it in a list, tuple, dict or deque that is one"


class _Noted(NamedTuple):
    """An environment or wrapper, and what it had when it was allocated.

    Attributes:
        env: The environment or wrapper.
        attributes: Names of its attributes.
        nested: Names of the arrays and random streams in lists, tuples, dicts and deques.
        unsaved: Name -> value outside of the state, and digest of its content.
        numbers: Its attributes that are numbers, by name.
        nested_numbers: Digests of the numbers and texts in containers and objects, by name.
    """

    env: ArrayEnv
    attributes: set[str]
    nested: set[str]
    unsaved: dict[str, Any]
    numbers: dict[str, Any]
    nested_numbers: dict[str, int]


class UnsavedState:
    """Arrays, tensors and random generators that an environment holds outside of its state; they must not change.

    These are arrays that the constructor made, those in objects that are attributes, and generators other than
    `RandomStreams` of the state. Numbers of Python, also in containers and objects, may change between checkpoints,
    with a warning. Environments and wrappers that extend `state_dict` are not checked. Of large arrays, only some
    numbers are compared, and of very many objects, only the first ones.

    A copy of this object, in a copy of the environment, notes the contents again.

    Args:
        env: The environment with its wrappers, just allocated.
    """

    def __init__(self, env: ArrayEnv) -> None:
        self._env = env
        self._layers: list[_Noted] = []
        while isinstance(env, ArrayWrapper):
            self._note(env)
            env = env.env
        self._note(env)

    def _note(self, env: ArrayEnv) -> None:
        """Note the contents of an environment, or of a wrapper, if its state is that of its attributes."""
        kind: Any = type(env)
        has_statistics = isinstance(env, ArrayWrapper) and kind.load_shared_state is not ArrayWrapper.load_shared_state
        is_extended = kind.state_dict not in (ArrayEnv.state_dict, ArrayWrapper.state_dict)
        if env.saves_state and not has_statistics and not is_extended:
            unsaved, numbers = dict(_unsaved(env)), nested_numbers(attributes_of(env))
            noted = _Noted(env, set(vars(env)), _nested_names(env), unsaved, numbers_of(env), numbers)
            self._layers.append(noted)

    def __reduce__(self) -> Any:
        return UnsavedState, (self._env,)  # digests of tensors are not those of their copies

    def check(self, *, for_copies: bool = False) -> None:
        """Check that nothing outside of the state has changed.

        A new attribute that is a number or a container, such as the latest actions, and a changed number, such as a
        count for debugging, are only warned of, as checkpoints do not hold them.

        Args:
            for_copies: Whether the state is copied to another environment (`copy_state`), which gets both.

        Raises:
            EnvContractError: Something has, or an array in a container was made after `allocate`, or removed; for
                copies, also a number that they do not get.
        """
        for noted in self._layers:
            if not for_copies:
                _warn_of_numbers(noted)
                _warn_of_new_attributes(noted)
            _check_nested(noted)
            _check_contents(noted)
            _check_nested_numbers(noted, for_copies)


def _warn_of_numbers(noted: _Noted) -> None:
    """Warn of attributes that are numbers and have changed."""
    for name in sorted(changed_numbers(noted.numbers, numbers_of(noted.env))):
        came = f"{type(noted.env).__name__} changes its number {name!r} in reset or step"
        remedy = "if later steps read it, make it an array [N] in allocate"
        _LOGGER.warning(f"{came}, which checkpoints do not hold: {remedy}")


def _warn_of_new_attributes(noted: _Noted) -> None:
    """Warn of numbers and containers that `reset` or `step` has made as attributes; cached properties may be."""
    kind = type(noted.env)
    nested = {name.partition(".")[0]: name for name in sorted(_nested_names(noted.env), reverse=True)}
    saved = noted.env.saved_containers()
    new = []
    for name in sorted(vars(noted.env).keys() - noted.attributes):
        value = vars(noted.env)[name]
        is_cached = isinstance(getattr(kind, name, None), cached_property)
        is_lost = isinstance(value, VALUES) or name in nested or (holds_values_only(value) and name not in saved)
        if is_lost and not is_cached:
            new.append(nested.get(name, name))
    if new:
        came = f"{kind.__name__} made {', '.join(map(repr, new[:3]))} in reset or step"
        remedy = "if later steps read it, make it in allocate"
        _LOGGER.warning(f"{came}, which a resumed run does not have at first: {remedy}")


def _check_nested(noted: _Noted) -> None:
    """Check that lists, tuples, dicts and deques hold the same arrays and random streams.

    Raises:
        EnvContractError: An attribute that existed before holds others.
    """
    for name in sorted(_nested_names(noted.env) ^ noted.nested):
        if name.partition(".")[0] in noted.attributes:
            came = f"{type(noted.env).__name__} made or removed {name!r} in reset or step"
            remedy = (
                "make the arrays and random streams in its lists, tuples, dicts and deques in allocate, and keep them"
            )
            raise EnvContractError(f"{came}, so that checkpoints cannot be resumed, nor copies made: {remedy}")


def _check_nested_numbers(noted: _Noted, for_copies: bool) -> None:
    """Check the numbers in containers and objects; for checkpoints, only warn of the first of each attribute.

    Raises:
        EnvContractError: For copies, one has changed in an object, or in a container that copies do not get.
    """
    kind = type(noted.env).__name__
    changed: dict[str, str] = {}
    for name in changed_nested_numbers(noted.nested_numbers, nested_numbers(attributes_of(noted.env))):
        changed.setdefault(name.partition(".")[0], name)
    saved = noted.env.saved_containers()
    for attribute, name in changed.items():
        if not for_copies and attribute in saved:
            continue
        if not for_copies:
            came = f"{kind} changes a number or text in {name!r} in reset or step"
            remedy = "if later steps read it, make an array [N] or a container of numbers in allocate"
            _LOGGER.warning(f"{came}, which checkpoints do not hold: {remedy}")
        elif not holds_values_only(vars(noted.env)[attribute]):
            came = f"{kind} changes a number or text in {name!r}, which copies do not hold"
            remedy = "make an array [N] or a container of numbers in allocate, or extend state_dict and load_state_dict"
            raise EnvContractError(f"{came}: {remedy}")


def _check_contents(noted: _Noted) -> None:
    """Check that nothing outside of the state has changed its content.

    Raises:
        EnvContractError: Something has.
    """
    options = noted.env.options()
    for name, (value, digest) in _unsaved(noted.env):
        if name not in noted.unsaved:
            continue
        _, digest_before = noted.unsaved[name]
        if digest == digest_before:
            continue
        came = f"{type(noted.env).__name__} changes {name!r}, which checkpoints and copies do not hold"
        if name in options:
            remedy = "it was made by the constructor: make it in allocate"
        elif isinstance(value, GENERATORS):
            remedy = f"use RandomStreams as an {_SAVED_PLACE}"
        else:
            remedy = f"make it an {_SAVED_PLACE}, in allocate, or extend state_dict and load_state_dict"
        raise EnvContractError(f"{came}: {remedy}")


def numbers_of(env: ArrayEnv) -> dict[str, Any]:
    """Return the attributes of an environment that are numbers of Python or NumPy, by name."""
    return {name: value for name, value in vars(env).items() if isinstance(value, _NUMBERS)}


def changed_numbers(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of numbers that have changed or are gone; NaN equals NaN."""
    return [name for name, value in before.items() if not _is_same(value, now.get(name))]


def changed_nested_numbers(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the names of results of `nested_numbers` that differ; those of one side only do not count."""
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])


def _is_same(one: Any, other: Any) -> bool:
    """True if two numbers are equal, or both NaN, which differs from itself."""
    return bool(one == other or (one != one and other != other))


def _nested_names(env: ArrayEnv) -> set[str]:
    """Names of the arrays and random streams in lists, tuples, dicts and deques."""
    return {nested.name for nested in nested_values(attributes_of(env))}


def _unsaved(env: ArrayEnv) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the names of values outside of the state, the values, and digests of their contents."""
    seen = {id(array) for array in env.state_dict().values()}  # those of the state are left out
    seen |= {id(streams) for streams in random_streams_of(env).values()}
    kinds = (*array_types(), RandomStreams, *GENERATORS)
    n_entries = 0
    waiting: list[tuple[str, Any]] = list(attributes_of(env).items())[::-1]
    for _ in range(_MOST_OBJECTS):
        if not waiting or n_entries > _MOST_ENTRIES:
            return
        name, value = waiting.pop()
        if id(value) in seen or isinstance(value, SKIPPED):
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            yield name, (value, _digest(value))
        else:
            parts = parts_of(value)
            n_entries += len(parts)
            waiting.extend((f"{name}.{part}", child) for part, child in parts.items() if not isinstance(child, VALUES))


def _digest(value: Any) -> Any:
    """Return something that differs if the content of an array, a tensor or a generator has changed."""
    if isinstance(value, np.ndarray):
        return _digest_of_array(value)
    if isinstance(value, RandomStreams):
        return [_digest_of_array(array) for array in value.state_dict().values()]
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return value.getstate()
    return id(value), 0 if value.is_inference() else value._version


def _digest_of_array(array: Array) -> Any:
    if array.dtype.hasobject:
        return None
    interval = max(1, array.size // _MOST_NUMBERS)
    return array.shape, array.dtype.str, zlib.crc32(np.ascontiguousarray(array.flat[::interval]).tobytes())
