"""Restoring the state of an object, and of everything it refers to."""

import random
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from maze_pl.core.packed_numbers import unpacked
from maze_pl.core.state_rules import ABSENT, PLAIN, Rules, SavesEpisode, StateError, path_of
from maze_pl.core.state_taking import StateTaker

_GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class StateGiver:
    """Restores the state of an object.

    Args:
        rules: The rules with which the state was taken.
        found: The `StateTaker` that has taken the object's current state.
    """

    def __init__(self, rules: Rules, found: StateTaker) -> None:
        self._rules = rules
        self._classes = found.classes
        self._anywhere = found.anywhere
        self._given: list[Any] = []  # restored objects by number, as far as they are known
        self._used: set[int] = set()  # ids of objects that hold a restored state and must not get another

    def give(self, state: Any, own: Any, path: str) -> Any:
        """Return the object for a place: possibly the present one, with its state replaced."""
        if type(state) in PLAIN:
            return state
        kind, *parts = state
        if kind == "stateless":
            return self._stateless(parts[0], own, path)
        if kind == "seen":
            return self._given[parts[0]]
        if kind == "scalar":
            return self._scalar(*parts)
        number = len(self._given)
        self._given.append(None)
        if id(own) in self._used:
            own = ABSENT
        value = getattr(self, f"_give_{kind.replace(' ', '_')}")(number, own, path, *parts)
        self._given[number] = value
        self._used.add(id(value))
        return value

    def _stateless(self, name: str, own: Any, path: str) -> Any:
        if own is not ABSENT and self._rules.name(own) == name:
            return own
        if name not in self._anywhere:
            raise StateError(f"{path} refers to {name!r}, which a new object does not refer to")
        return self._anywhere[name]

    def _class(self, name: str, path: str, *bases: type) -> Any:
        """Return the class of a known object, if it is derived from one of `bases`."""
        if name not in self._classes or not issubclass(self._classes[name], bases):
            raise StateError(f"{path} is a {name}, and a new object contains no instance of this class")
        return self._classes[name]

    @staticmethod
    def _scalar(dtype: str, shape: list[int], content: Any) -> Any:
        return np.frombuffer(np.asarray(content, np.uint8).tobytes(), np.dtype(dtype)).reshape(shape)[()]

    def _give_array(self, _: int, own: Any, path: str, dtype: str, shape: list[int], content: Any) -> Any:
        array = np.frombuffer(np.asarray(content, np.uint8).tobytes(), np.dtype(dtype)).reshape(shape)
        fits = type(own) is np.ndarray and own.dtype == array.dtype and own.shape == array.shape
        if not fits or not own.flags.writeable:
            return array.copy()
        own[...] = array
        return own

    def _give_bytes(self, _: int, own: Any, path: str, content: Any) -> bytes:
        return bytes(np.asarray(content, np.uint8))

    def _give_generator(self, _: int, own: Any, path: str, name: str, items: list[Any]) -> Any:
        if name not in _GENERATORS:
            raise StateError(f"{path} is a random generator of the unknown kind {name!r}")
        is_same = isinstance(own, np.random.Generator) and type(own.bit_generator).__name__ == name
        generator = own if is_same else np.random.Generator(getattr(np.random, name)())
        generator.bit_generator.state = self._pairs(items, {}, path)
        return generator

    def _give_random_state(self, _: int, own: Any, path: str, items: list[Any]) -> Any:
        generator = own if isinstance(own, np.random.RandomState) else np.random.RandomState()
        generator.set_state(self._pairs(items, {}, path))
        return generator

    def _give_random(self, _: int, own: Any, path: str, state: Any) -> Any:
        generator = own if isinstance(own, random.Random) else random.Random()
        generator.setstate(self.give(state, ABSENT, path))
        return generator

    def _give_own(self, _: int, own: Any, path: str, state: Any) -> Any:
        if not isinstance(own, SavesEpisode):
            raise StateError(f"{path} has no load_episode_state")
        own.load_episode_state(self.give(state, ABSENT, path))
        return own

    def _give_numbers(self, number: int, own: Any, path: str, class_name: str, *packed: Any) -> Any:
        return self._filled(number, own, path, class_name, lambda _: unpacked(*packed))

    def _give_sequence(self, number: int, own: Any, path: str, class_name: str, parts: list[Any]) -> Any:
        kind = self._class(class_name, path, tuple, list, deque)
        there = list(own) if type(own) is kind else []
        there += [ABSENT] * (len(parts) - len(there))

        def fill(_: Any) -> list[Any]:
            return [self.give(part, there[n], f"{path}[{n}]") for n, part in enumerate(parts)]

        if not issubclass(kind, tuple):
            return self._filled(number, own, path, class_name, fill)
        given = fill(None)
        if type(own) is kind and len(own) == len(given) and all(a is b for a, b in zip(own, given, strict=True)):
            return own
        return tuple.__new__(kind, given)

    def _give_set(self, number: int, own: Any, path: str, class_name: str, parts: list[Any]) -> Any:
        kind = self._class(class_name, path, set, frozenset)
        given = {self.give(part, ABSENT, path) for part in parts}
        if type(own) is not kind or kind is frozenset:
            return kind(given)
        own.clear()
        own.update(given)
        return own

    def _give_dict(self, number: int, own: Any, path: str, class_name: str, items: list[Any]) -> Any:
        kind = self._class(class_name, path, dict)
        made = own if type(own) is kind else kind.__new__(kind)
        self._given[number] = made
        there = dict(made)
        made.clear()
        made.update(self._pairs(items, there, path))
        return made

    def _pairs(self, items: list[Any], there: Mapping[Any, Any], path: str) -> dict[Any, Any]:
        given = {}
        for key_state, state in items:
            key = self.give(key_state, ABSENT, path)
            given[key] = self.give(state, there.get(key, ABSENT), f"{path}[{key!r:.40}]")
        return given

    def _filled(self, number: int, own: Any, path: str, class_name: str, fill: Callable[[Any], list[Any]]) -> Any:
        """Fill a list or deque with new content, reusing the present one if its type fits."""
        kind = self._class(class_name, path, list, deque)
        made = own if type(own) is kind else kind()
        self._given[number] = made
        content = fill(made)
        made.clear()
        made.extend(content)
        return made

    def _give_method(self, _: int, own: Any, path: str, name: str, owner: Any) -> Any:
        is_method = isinstance(own, types.MethodType | types.BuiltinFunctionType)
        if not is_method or own.__name__ != name or self.give(owner, own.__self__, path) is not own.__self__:
            raise StateError(f"{path} is a method {name}, but a new object has a different one there")
        return own

    def _give_closure(self, _: int, own: Any, path: str, name: str, parts: list[Any]) -> Any:
        if not isinstance(own, types.FunctionType) or path_of(own) != name:
            raise StateError(f"{path} is a function {name} with enclosed values, which a new object does not have")
        for cell, part in zip(own.__closure__ or (), parts, strict=True):
            cell.cell_contents = self.give(part, cell.cell_contents, f"{path}()")
        return own

    def _give_partial(self, _: int, own: Any, path: str, parts: Any) -> Any:
        there = [own.func, *own.args, own.keywords] if isinstance(own, partial) else ABSENT
        function, *arguments, keywords = self.give(parts, there, path)
        return partial(function, *arguments, **keywords)

    def _give_object(self, number: int, own: Any, path: str, class_name: str, items: list[Any]) -> Any:
        kind = self._class(class_name, path, object)
        made = own if type(own) is kind else object.__new__(kind)
        self._given[number] = made
        there = self._rules.attributes_of(made)
        for name in there.keys() - {name for name, _ in items}:
            object.__delattr__(made, name)
        for name, state in items:
            value = self.give(state, there.get(name, ABSENT), f"{path}.{name}")
            if there.get(name, ABSENT) is not value:
                object.__setattr__(made, name, value)
        return made
