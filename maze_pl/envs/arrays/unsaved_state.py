"""Detection of arrays and random generators that change during episodes, but that the state does not hold."""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_events import ArrayEvents
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.nested_arrays import array_types, nested_values, parts_of, random_streams_of
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.structured_env import Array

_LOGGER: Final = logging.getLogger(__name__)
_MOST_OBJECTS: Final = 20_000  # that are searched
_MOST_NUMBERS: Final = 10_000  # of an array that are compared
_GENERATORS: Final = (np.random.Generator, np.random.RandomState, random.Random)
_NUMBERS: Final = (int, float, np.generic)  # bool is a kind of int
_SKIPPED: Final = (ArrayEnv, ArrayEvents, ArrayChecks, spaces.Space)
_SAVED_PLACE: Final = "attribute of the environment, or keep it in a list, tuple or dict that is one"


class _Noted(NamedTuple):
    """An environment or wrapper, and what it had when it was allocated.

    Attributes:
        env: The environment or wrapper.
        attributes: Names of its attributes.
        nested: Names of the arrays and random streams in lists, tuples and dicts.
        unsaved: Name -> value outside of the state, and digest of its content.
        numbers: Its attributes that are numbers, by name.
    """

    env: ArrayEnv
    attributes: set[str]
    nested: set[str]
    unsaved: dict[str, Any]
    numbers: dict[str, Any]


class UnsavedState:
    """Arrays, tensors and random generators that an environment holds outside of its state; they must not change.

    These are arrays that the constructor made, those in objects that are attributes, and generators other than
    `RandomStreams` of the state. Environments and wrappers that extend `state_dict` are not checked. Of large arrays,
    only some numbers are compared, and of very many objects, only the first ones.

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
            names = set(vars(env))
            self._layers.append(_Noted(env, names, _nested_names(env), dict(_unsaved(env)), numbers_of(env)))

    def __reduce__(self) -> Any:
        return UnsavedState, (self._env,)  # digests of tensors are not those of their copies

    def check(self, *, for_copies: bool = False) -> None:
        """Check that nothing outside of the state has changed.

        A list, tuple or dict with arrays that is a new attribute, such as the latest actions, and a changed
        number, such as a count for debugging, are only warned of, as checkpoints do not hold them.

        Args:
            for_copies: Whether the state is copied to another environment (`copy_state`), which gets both.

        Raises:
            EnvContractError: Something has, or an array in a list, tuple or dict was made after `allocate`, or removed.
        """
        for noted in self._layers:
            if not for_copies:
                _warn_of_numbers(noted)
            _check_nested(noted, for_copies)
            _check_contents(noted)


def _warn_of_numbers(noted: _Noted) -> None:
    """Warn of attributes that are numbers and have changed."""
    current = numbers_of(noted.env)
    for name in sorted(noted.numbers):
        if current.get(name) != noted.numbers[name]:
            came = f"{type(noted.env).__name__} changes its number {name!r} in reset or step"
            remedy = "if later steps read it, make it an array [N] in allocate"
            _LOGGER.warning(f"{came}, which checkpoints do not hold: {remedy}")


def _check_nested(noted: _Noted, for_copies: bool) -> None:
    """Check that lists, tuples and dicts hold the same arrays and random streams; warn of those in new attributes.

    Raises:
        EnvContractError: An attribute that existed before holds others.
    """
    kind = type(noted.env).__name__
    differing = sorted(_nested_names(noted.env) ^ noted.nested)
    new = [name for name in differing if name.partition(".")[0] not in noted.attributes]
    if new and not for_copies:
        came = f"{kind} made {', '.join(map(repr, new[:3]))} in reset or step"
        remedy = "if later steps read it, make it in allocate"
        _LOGGER.warning(f"{came}, which a resumed run does not have at first: {remedy}")
    for name in differing:
        if name not in new:
            came = f"{kind} made or removed {name!r} in reset or step"
            remedy = "make the arrays and random streams in its lists, tuples and dicts in allocate, and keep them"
            raise EnvContractError(f"{came}, so that checkpoints cannot be resumed, nor copies made: {remedy}")


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
        elif isinstance(value, _GENERATORS):
            remedy = f"use RandomStreams as an {_SAVED_PLACE}"
        else:
            remedy = f"make it an {_SAVED_PLACE}, in allocate, or extend state_dict and load_state_dict"
        raise EnvContractError(f"{came}: {remedy}")


def numbers_of(env: ArrayEnv) -> dict[str, bool | int | float | np.generic]:
    """Return the attributes of an environment that are numbers, by name."""
    return {name: value for name, value in vars(env).items() if isinstance(value, _NUMBERS)}


def _nested_names(env: ArrayEnv) -> set[str]:
    """Names of the arrays and random streams in lists, tuples and dicts."""
    return {nested.name for nested in nested_values(_attributes(env))}


def _attributes(env: ArrayEnv) -> dict[str, Any]:
    """Attributes of an environment, without the note of those that existed before `allocate`."""
    return {name: value for name, value in vars(env).items() if name != "_given_arrays"}


def _unsaved(env: ArrayEnv) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the names of values outside of the state, the values, and digests of their contents."""
    seen = {id(array) for array in env.state_dict().values()}  # those of the state are left out
    seen |= {id(streams) for streams in random_streams_of(env).values()}
    kinds = (*array_types(), RandomStreams, *_GENERATORS)
    waiting: list[tuple[str, Any]] = list(_attributes(env).items())[::-1]
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return
        name, value = waiting.pop()
        if id(value) in seen or isinstance(value, _SKIPPED):
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            yield name, (value, _digest(value))
        else:
            waiting.extend((f"{name}.{part}", child) for part, child in parts_of(value).items())


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
