"""Detection of arrays, generators and numbers that change, but that the state does not hold."""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.nested_arrays import (
    GENERATORS,
    MOST_ENTRIES,
    VALUES,
    array_types,
    attributes_of,
    holds_values_only,
    is_container,
    nested_values,
    random_streams_of,
    walked,
)
from maze_pl.envs.arrays.nested_numbers import SKIPPED, changed_nested_numbers, nested_numbers
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.arrays.saved_containers import given_names, is_cached, options_in_place, why_not_saved
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.structured_env import Array

_LOGGER: Final = logging.getLogger(__name__)
_MOST_NUMBERS: Final = 10_000  # of an array that are compared
_NUMBERS: Final = (int, float, np.number, np.bool_)  # bool is a kind of int
_SAVED_PLACE: Final = "attribute of the environment, or keep it in a list, tuple, dict or deque that is one"


class _Noted(NamedTuple):
    """An environment or wrapper, and what it had when it was allocated.

    Attributes:
        env: The environment or wrapper.
        attributes: Names of its attributes.
        nested: Names of the arrays and random streams in lists, tuples, dicts and deques.
        unsaved: Name -> value outside of the state, and digest of its content, also of later ones.
        later: Names in `unsaved` of arrays that did not exist when it was allocated.
        numbers: Its attributes that are numbers, by name.
        nested_numbers: Digests of the numbers and texts in containers and objects, by name, also
            of later ones.
        given_numbers: Those of the containers that existed before it was allocated.
    """

    env: ArrayEnv
    attributes: set[str]
    nested: set[str]
    unsaved: dict[str, Any]
    later: set[str]
    numbers: dict[str, Any]
    nested_numbers: dict[str, int]
    given_numbers: dict[str, int]


class UnsavedState:
    """Arrays and random generators that an environment holds outside of its state, and must not change.

    These are arrays that the constructor made, those in objects that are attributes, and generators
    other than `RandomStreams` of the state. Numbers of Python, also in containers and objects, may
    change between checkpoints, with a warning, and so may arrays that did not exist after
    `allocate`. Everything is compared with its content when it was first seen: after `allocate`,
    after the first `reset` and `step` of an `ArrayVectorEnv`, and at each check. Environments and
    wrappers that extend `state_dict` are not checked. Of large arrays, only some numbers are
    compared, and of very many objects, only the first ones.

    A copy of this object, in a copy of the environment, notes the contents again.

    Args:
        env: The environment with its wrappers, just allocated.
    """

    def __init__(self, env: ArrayEnv) -> None:
        self._env = env
        self._layers: list[_Noted] = []
        self._first_calls = {"reset", "step"}
        self._saved: set[str] | None = None  # containers that the first checkpoint has held
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
            noted = _Noted(
                env,
                attributes=set(vars(env)),
                nested=_nested_names(env),
                unsaved=dict(_unsaved(env)),
                later=set(),
                numbers=plain_numbers(env),
                nested_numbers=nested_numbers(attributes_of(env)),
                given_numbers=nested_numbers(env.given_containers),
            )
            self._layers.append(noted)

    def __reduce__(self) -> Any:
        return UnsavedState, (self._env,)  # digests of tensors are not those of their copies

    def note_first(self, call: str) -> None:
        """Note what the first `reset` or `step` has made, for comparison at the first checkpoint.

        Args:
            call: `reset` or `step`; only the first call of each counts.
        """
        if call in self._first_calls:
            self._first_calls.remove(call)
            self._note_new()

    def _note_new(self) -> None:
        """Note values and numbers that did not exist before."""
        for noted in self._layers:
            for name, (value, digest) in _unsaved(noted.env):
                if name not in noted.unsaved:
                    noted.unsaved[name] = value, digest
                    if isinstance(value, array_types()):
                        noted.later.add(name)
            for name, digest in nested_numbers(attributes_of(noted.env)).items():
                noted.nested_numbers.setdefault(name, digest)

    def check_checkpoint(self) -> None:
        """Check the state for the first checkpoint; for later ones, warn of containers that they lack.

        Raises:
            EnvContractError: As for `check`.
        """
        env = self._env.unwrapped
        saved = set(env.saved_containers())
        if self._saved is None:
            self.check()
            self._saved = saved
        for name in sorted(self._saved - saved - options_in_place(env, env.given_containers)):
            reason = _why_not_saved(env, name)
            came = f"checkpoints no longer hold {name!r} of {type(env).__name__}"
            _LOGGER.warning(f"{came}, which {reason}")
        self._saved = saved

    def check(self, *, for_copies: bool = False) -> None:
        """Check that nothing outside of the state has changed.

        A new attribute that checkpoints do not hold, such as the latest actions, and a changed
        number, such as a count for debugging, are only warned of, and so are changes of arrays that
        did not exist after `allocate`.

        Args:
            for_copies: Whether the state is copied to another environment (`copy_state`), which gets both.

        Raises:
            EnvContractError: Something has, or an array in a container was made after `allocate`, or removed; for
                copies, also a number or an array that they do not get.
        """
        for noted in self._layers:
            if not for_copies:
                _warn_of_numbers(noted)
                _warn_of_new_attributes(noted)
            _check_nested(noted)
            _check_contents(noted, for_copies)
            _check_nested_numbers(noted, for_copies)
        self._note_new()


def _warn_of_numbers(noted: _Noted) -> None:
    """Warn of attributes that are numbers and have changed."""
    for name in sorted(changed_numbers(noted.numbers, plain_numbers(noted.env))):
        came = f"{type(noted.env).__name__} changes its number {name!r} in reset or step"
        remedy = "if later steps read it, make it an array [N] in allocate"
        _LOGGER.warning(f"{came}, which checkpoints do not hold: {remedy}")


def _warn_of_new_attributes(noted: _Noted) -> None:
    """Warn of attributes that `reset` or `step` has made, and checkpoints lack; cached ones may be."""
    env = noted.env
    made = vars(env).keys() - noted.attributes
    nested = {name.partition(".")[0]: name for name in sorted(_nested_names(env), reverse=True)}
    attributes = {name: vars(env)[name] for name in made}
    outside = {name.partition(".")[0] for name in nested_numbers(attributes)}
    outside |= {name.partition(".")[0] for name, _ in _unsaved(env)}
    outside -= env.saved_containers().keys()
    new = []
    for name in sorted(made):
        if (name in outside or isinstance(attributes[name], VALUES)) and not is_cached(env, name):
            new.append(nested.get(name, name))
    if new:
        came = f"{type(env).__name__} made {', '.join(map(repr, new[:3]))} in reset or step"
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
    env = noted.env
    kind = type(env).__name__
    changed: dict[str, str] = {}
    for name in changed_nested_numbers(noted.nested_numbers, nested_numbers(attributes_of(env))):
        changed.setdefault(name.partition(".")[0], name)
    containers = env.own_containers() if for_copies else env.saved_containers()
    held = options_in_place(env, env.given_containers) | containers.keys()
    remedy = "make an array [N] or a container of numbers in allocate"
    for attribute, name in changed.items():
        if attribute in held and not _is_changed_option(noted, vars(env)[attribute]):
            continue
        is_held = is_container(vars(env)[attribute])
        because = f", as {attribute!r} {_why_not_saved(env, attribute)}" if is_held else ""
        came = f"{kind} changes a number or text in {name!r}"
        if for_copies:
            fault = f"{came}, which copies do not hold{because}"
            raise EnvContractError(f"{fault}: {remedy}, or extend state_dict and load_state_dict")
        if attribute in noted.attributes or is_cached(env, attribute):  # others are warned of as new
            fault = f"{came} in reset or step, which checkpoints do not hold{because}"
            _LOGGER.warning(f"{fault}: if later steps read it, {remedy}")


def _is_changed_option(noted: _Noted, value: Any) -> bool:
    """True for a container that existed before `allocate`, and has got another content since then."""
    name = given_names(noted.env.given_containers).get(id(value))
    if name is None:
        return False
    return bool(changed_nested_numbers(noted.given_numbers, nested_numbers({name: value})))


def _why_not_saved(env: ArrayEnv, name: str) -> str:
    """Return why checkpoints lack an attribute that is or was a container: `is or has a Counter`."""
    value = vars(env).get(name)
    if not is_container(value):
        return "is not a container now"
    if not holds_values_only(value):
        parts = (part for _, part, _ in walked({name: value}))
        others = (type(part).__name__ for part in parts if not is_container(part))
        return f"has a {next(others, f'number of entries above {MOST_ENTRIES:,}')}"
    if is_cached(env, name):
        return "is a cached property"
    own = env.own_containers()
    if name in own and isinstance(env, ArrayWrapper):
        return "belongs to a wrapper"
    if id(value) in given_names(env.given_containers):
        return "existed before allocate"
    return why_not_saved(own, env.given_containers).get(name, "")


def _check_contents(noted: _Noted, for_copies: bool) -> None:
    """Check that nothing outside of the state has changed its content; for checkpoints, only warn of later arrays.

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
        if name in noted.later and not for_copies:
            _LOGGER.warning(f"{came}: if later steps read it, make it an {_SAVED_PLACE}, in allocate")
            continue
        if name in options:
            remedy = "it was made by the constructor: make it in allocate"
        elif isinstance(value, GENERATORS):
            remedy = f"use RandomStreams as an {_SAVED_PLACE}"
        else:
            remedy = f"make it an {_SAVED_PLACE}, in allocate, or extend state_dict and load_state_dict"
        raise EnvContractError(f"{came}: {remedy}")


def plain_numbers(env: ArrayEnv) -> dict[str, Any]:
    """Return the attributes of an environment that are numbers of Python or NumPy, by name."""
    return {name: value for name, value in vars(env).items() if isinstance(value, _NUMBERS)}


def changed_numbers(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of numbers that have changed or are gone; NaN equals NaN."""
    return [name for name, value in before.items() if not _is_same(value, now.get(name))]


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
    for name, value, _ in walked(attributes_of(env), SKIPPED):
        if isinstance(value, kinds) and id(value) not in seen:
            yield name, (value, _digest(value))


def _digest(value: Any) -> Any:
    """Return something that differs if the content of an array or a generator has changed."""
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
