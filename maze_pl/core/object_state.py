"""State of Python objects as arrays and primitives, to restore into objects made the same way.

Nothing is pickled, and nothing that a state names is imported or called. A function, method or
class is accepted only where the receiving object already has the same one, so a state from an
untrusted source can change data and nothing else.
"""

import copyreg
import inspect
import logging
import operator
import random
import re
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

_PLAIN: Final = (type(None), bool, int, float, str)
_STATELESS: Final = (
    *(types.ModuleType, types.GenericAlias, np.dtype, np.ufunc, re.Pattern, logging.Logger, inspect.Signature),
    *(PurePath, range, slice, property, operator.attrgetter, operator.itemgetter, operator.methodcaller),
)
_CODE: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_GENERATORS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_MANAGED_DICT: Final = 1 << 4  # Py_TPFLAGS_MANAGED_DICT: the dict is not part of the object's size
_POINTER: Final = 8
_MANY: Final = 64  # smallest number of values worth packing
_ABSENT: Final = object()


class StateError(TypeError):
    """A state cannot be taken from an object, or cannot be given to an object."""


@runtime_checkable
class SavesEpisode(Protocol):
    """A part of an environment that saves and restores its state within an episode.

    Simulations whose attributes do not hold all of their state, such as engines in another
    language, define both methods, so that a checkpoint holds their state instead of all actions of
    a long episode.
    """

    def episode_state(self) -> Any:
        """Return all that the rest of the episode depends on.

        Returns:
            Arrays, numbers, strings, and lists and dicts of these.
        """
        ...

    def load_episode_state(self, state: Any) -> None:
        """Continue from the `episode_state` of another object that was made in the same way."""
        ...


@dataclass(frozen=True)
class Rules:
    """Rules for the state of certain classes.

    Attributes:
        stateless: Class without state -> function that names one of its objects.
        attributes: Class -> attributes that hold its state, if not all attributes do.
        classes: Classes of objects that may occur anywhere.
        anywhere: Class -> function that lists the objects that one of its objects refers to and
            that may occur anywhere, such as classes that mark events.
    """

    stateless: Mapping[type, Callable[[Any], str]] = field(default_factory=dict)
    anywhere: Mapping[type, Callable[[Any], tuple[Any, ...]]] = field(default_factory=dict)
    attributes: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[type, ...] = ()

    def name(self, value: Any) -> str | None:
        """Name of an object without state; None if it has a state."""
        if isinstance(value, type):
            return f"class {_path(value)}"
        if isinstance(value, types.FunctionType) and not value.__closure__:
            return f"function {_path(value)}"
        if isinstance(value, Enum):
            return f"member {_path(type(value))}.{value.name}"
        if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | type(None)):
            return f"function {value.__module__}:{value.__qualname__}"
        if type(value) in self.stateless:
            return f"{type(value).__name__} {self.stateless[type(value)](value)}"
        return f"{type(value).__name__} {value}" if isinstance(value, _STATELESS) or value is Ellipsis else None

    def attributes_of(self, value: Any) -> dict[str, Any]:
        """Attributes of an object that hold its state."""
        slots = copyreg._slotnames(type(value))  # type: ignore[attr-defined]
        names = self.attributes.get(type(value)) or (*getattr(value, "__dict__", ()), *slots)
        return {name: found for name in names if (found := getattr(value, name, _ABSENT)) is not _ABSENT}


class _Taker:
    """Takes the state of an object and of everything it refers to.

    Attributes:
        classes: Classes of all objects found, by name.
        anywhere: Stateless objects found that may occur anywhere, by name: objects that are not
            code, and keys.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules, self._in_key = rules, False
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is reused
        self.classes: dict[str, Any] = {
            _path(kind): kind for kind in (*rules.classes, tuple, list, dict, set, frozenset)
        }
        self.anywhere: dict[str, Any] = {}

    def take(self, value: Any, path: str) -> Any:
        """Return the state: a primitive as is, or a list that begins with the kind of object."""
        if type(value) in _PLAIN:
            return value
        if (name := self._rules.name(value)) is not None:
            self._note(value)
            return ["stateless", name]
        if isinstance(value, np.generic):  # immutable: which objects share it makes no difference
            return self._array(value, path)
        if id(value) in self._numbers:
            return ["seen", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, bytes):
            return ["bytes", np.frombuffer(value, np.uint8)]
        if isinstance(value, np.random.Generator):
            return ["generator", type(value.bit_generator).__name__, self._items(value.bit_generator.state, path)]
        if isinstance(value, np.random.RandomState):
            return ["random state", self._items(value.get_state(legacy=False), path)]
        if isinstance(value, random.Random):
            return ["random", self.take(value.getstate(), path)]
        if isinstance(value, SavesEpisode) and issubclass(type(value), SavesEpisode):
            return ["own", self.take(value.episode_state(), f"{path}.episode_state()")]
        return self._compound(value, path)

    def _note(self, value: Any) -> None:
        """Note a stateless object, if it may occur anywhere."""
        found = self._rules.anywhere[type(value)](value) if type(value) in self._rules.anywhere else ()
        if isinstance(value, Enum):
            found = tuple(type(value))
        elif self._in_key or not isinstance(value, _CODE):
            found = (*found, value)
        self.anywhere.update({self._rules.name(one) or "": one for one in found})

    def _compound(self, value: Any, path: str) -> Any:
        kind = type(value)
        class_name = _path(kind)
        self.classes[class_name] = kind
        if isinstance(value, list | deque) and (packed := _packed(value)) is not None:
            return ["numbers", class_name, *packed]
        if isinstance(value, tuple | list | deque):
            return ["sequence", class_name, [self.take(part, f"{path}[{n}]") for n, part in enumerate(value)]]
        if isinstance(value, set | frozenset):
            return ["set", class_name, [self.take(part, path) for part in sorted(value, key=repr)]]
        if isinstance(value, dict):
            return ["dict", class_name, self._items(value, path)]
        if isinstance(value, types.MethodType | types.BuiltinFunctionType):
            return ["method", value.__name__, self.take(value.__self__, f"{path}.__self__")]
        if isinstance(value, types.FunctionType):
            cells = [self.take(cell.cell_contents, f"{path}()") for cell in value.__closure__ or ()]
            return ["closure", _path(value), cells]
        if isinstance(value, partial):
            return ["partial", self.take([value.func, *value.args, value.keywords], path)]
        if _is_foreign(kind):
            raise StateError(f"{path} is a {class_name.removeprefix(':')}, whose state is not visible from Python")
        attributes = self._rules.attributes_of(value).items()
        return ["object", class_name, [[name, self.take(part, f"{path}.{name}")] for name, part in attributes]]

    def _items(self, value: Mapping[Any, Any], path: str) -> list[Any]:
        items = []
        for key, part in value.items():
            was_in_key, self._in_key = self._in_key, True
            taken = self.take(key, path)
            self._in_key = was_in_key
            items.append([taken, self.take(part, f"{path}[{key!r:.40}]")])
        return items

    @staticmethod
    def _array(value: Any, path: str) -> list[Any]:
        if value.dtype.hasobject:
            raise StateError(f"{path} is an array of Python objects")
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return [kind, value.dtype.str, list(value.shape), np.frombuffer(value.tobytes(), np.uint8)]


class _Giver:
    """Gives a state to an object.

    Args:
        rules: The rules with which the state was taken.
        found: The `_Taker` that has taken the object's current state.
    """

    def __init__(self, rules: Rules, found: _Taker) -> None:
        self._rules = rules
        self._classes = found.classes
        self._anywhere = found.anywhere
        self._given: list[Any] = []  # restored objects by number, as far as they are known
        self._used: set[int] = set()  # ids of objects that hold a restored state and must not get another

    def give(self, state: Any, own: Any, path: str) -> Any:
        """Return the object for a place: possibly the present one, with its state replaced."""
        if type(state) in _PLAIN:
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
            own = _ABSENT
        value = getattr(self, f"_give_{kind.replace(' ', '_')}")(number, own, path, *parts)
        self._given[number] = value
        self._used.add(id(value))
        return value

    def _stateless(self, name: str, own: Any, path: str) -> Any:
        if own is not _ABSENT and self._rules.name(own) == name:
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
        generator.setstate(self.give(state, _ABSENT, path))
        return generator

    def _give_own(self, _: int, own: Any, path: str, state: Any) -> Any:
        if not isinstance(own, SavesEpisode):
            raise StateError(f"{path} has no load_episode_state")
        own.load_episode_state(self.give(state, _ABSENT, path))
        return own

    def _give_numbers(self, number: int, own: Any, path: str, class_name: str, *packed: Any) -> Any:
        return self._filled(number, own, path, class_name, lambda _: _unpacked(*packed))

    def _give_sequence(self, number: int, own: Any, path: str, class_name: str, parts: list[Any]) -> Any:
        kind = self._class(class_name, path, tuple, list, deque)
        there = list(own) if type(own) is kind else []
        there += [_ABSENT] * (len(parts) - len(there))

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
        given = {self.give(part, _ABSENT, path) for part in parts}
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
            key = self.give(key_state, _ABSENT, path)
            given[key] = self.give(state, there.get(key, _ABSENT), f"{path}[{key!r:.40}]")
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
            raise StateError(f"{path} is a method {name}, but a different one in a new object")
        return own

    def _give_closure(self, _: int, own: Any, path: str, name: str, parts: list[Any]) -> Any:
        if not isinstance(own, types.FunctionType) or _path(own) != name:
            raise StateError(f"{path} is a function {name} with enclosed values, which a new object does not have")
        for cell, part in zip(own.__closure__ or (), parts, strict=True):
            cell.cell_contents = self.give(part, cell.cell_contents, f"{path}()")
        return own

    def _give_partial(self, _: int, own: Any, path: str, parts: Any) -> Any:
        there = [own.func, *own.args, own.keywords] if isinstance(own, partial) else _ABSENT
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
            value = self.give(state, there.get(name, _ABSENT), f"{path}.{name}")
            if there.get(name, _ABSENT) is not value:
                object.__setattr__(made, name, value)
        return made


_NO_RULES: Final = Rules()


def take_state(value: Any, rules: Rules = _NO_RULES, name: str = "it") -> Any:
    """Take the state of an object and of everything it refers to.

    Args:
        value: The object.
        rules: Rules for certain classes.
        name: Name of the object in messages.

    Returns:
        Primitives, arrays, and lists of them.

    Raises:
        StateError: Something is not made of Python and NumPy values, and does not implement
            `SavesEpisode`.
    """
    try:
        return _Taker(rules).take(value, name)
    except RecursionError:
        raise StateError(f"{name} is nested too deeply") from None


def give_state(value: Any, state: Any, rules: Rules = _NO_RULES, name: str = "it") -> None:
    """Restore a state into an object made like the original, and into everything it refers to.

    Args:
        value: The object.
        state: Result of `take_state`.
        rules: The rules with which the state was taken.
        name: Name of the object in messages.

    Raises:
        StateError: The object is of another kind, or lacks something that the state refers to.
    """
    taker = _Taker(rules)
    taker.take(value, name)
    if _Giver(rules, taker).give(state, value, name) is not value:
        raise StateError(f"this is not the state of a {type(value).__name__}")


def arrays_of(state: Any) -> Iterator[np.ndarray]:
    """Yield the arrays of a state, which make up nearly all of its size."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, list):
        for part in state:
            yield from arrays_of(part)


def is_same_state(state: Any, other: Any) -> bool:
    """True if two states are equal, bit for bit."""
    if isinstance(state, list):
        same_length = isinstance(other, list) and len(state) == len(other)
        return same_length and all(is_same_state(a, b) for a, b in zip(state, other, strict=True))
    if isinstance(state, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(state, other)
    return type(state) is type(other) and (state == other or (state != state and other != other))


def _path(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}:{value.__qualname__}"


def _is_foreign(kind: type) -> bool:
    """True if objects of a class hold more data than the attributes that Python knows of."""
    size = object.__basicsize__ + _POINTER * len(copyreg._slotnames(kind))  # type: ignore[attr-defined]
    size += _POINTER * (kind.__weakrefoffset__ > 0)
    size += _POINTER * (kind.__dictoffset__ != 0 and not kind.__flags__ & _MANAGED_DICT)
    return kind.__basicsize__ > size or kind.__itemsize__ > 0


def _packed(values: list[Any] | deque[Any]) -> tuple[Any, ...] | None:
    """Compress many numbers or arrays of one kind; None for other values.

    Integers are stored as differences, which take few distinct values in counts and times.
    """
    kinds = set(map(type, values))
    if len(values) < _MANY or len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is np.ndarray:
        shapes = {(value.dtype, value.shape) for value in values}
        if len(shapes) != 1 or values[0].dtype.hasobject:
            return None
    elif kind is not int and kind is not float:
        return None
    try:
        array = np.array(values, np.int64 if kind is int else None)
    except OverflowError:
        return None
    differences = np.diff(array, prepend=np.int64(0)) if kind is int else array
    content = np.frombuffer(zlib.compress(differences.tobytes(), 1), np.uint8)
    return kind is np.ndarray, array.dtype.str, list(array.shape), content


def _unpacked(are_arrays: bool, dtype: str, shape: list[int], content: Any) -> list[Any]:
    whole = zlib.decompress(np.asarray(content, np.uint8).tobytes())
    array = np.frombuffer(whole, np.dtype(dtype)).reshape(shape)
    if are_arrays:
        return [part.copy() for part in array]
    return list((array.cumsum() if array.dtype.kind == "i" else array).tolist())
