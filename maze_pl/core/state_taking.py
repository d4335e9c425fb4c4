"""Capturing the state of an object, and of everything it refers to.

The state of a plain value of Python (`PLAIN`) is the value itself. That of any other object is a list
of its kind and what the kind needs:

| kind | rest of the list |
|---|---|
| `stateless` | name of an object without state, such as a class |
| `seen` | number of an object that was captured before; the first one has the number 0 |
| `array`, `scalar` | dtype, shape, bytes |
| `bytes` | bytes |
| `generator` | name of the bit generator, items of its state |
| `random state`, `random` | state of a generator of NumPy's earlier kind, or of Python |
| `own` | what `episode_state` returned |
| `numbers` | class, result of `packed` |
| `sequence`, `set` | class, states of the parts |
| `dict` | class, pairs of states |
| `method` | name, state of the object that it belongs to |
| `closure` | path of the function, states of the enclosed values |
| `partial` | state of a list of the function, the arguments and the keywords |
| `object` | class, pairs of the name and the state of an attribute |
"""

import copyreg
import random
import types
from collections import deque
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

import numpy as np

from maze_pl.core.packed_numbers import packed
from maze_pl.core.state_rules import PLAIN, Rules, SavesEpisode, StateError, path_of

_CODE: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_MANAGED_DICT: Final = 1 << 4  # Py_TPFLAGS_MANAGED_DICT: the dict is not part of the object's size
_POINTER: Final = 8


class StateTaker:
    """Captures the state of an object and of everything it refers to.

    Args:
        rules: Rules for certain classes.

    Attributes:
        classes: Classes of all objects found, by name.
        anywhere: Stateless objects found that may occur anywhere, by name: objects that are not
            code, and keys.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._in_key = False  # True within the key of a dict
        self._numbers: dict[int, int] = {}  # id of an object -> its number
        self._alive: list[Any] = []  # so that no id is reused
        self.classes: dict[str, Any] = {
            path_of(kind): kind for kind in (*rules.classes, tuple, list, dict, set, frozenset)
        }
        self.anywhere: dict[str, Any] = {}

    def take(self, value: Any, path: str) -> Any:
        """Return the state: a primitive as is, or a list that begins with the kind of object."""
        if type(value) in PLAIN:
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
        class_name = path_of(kind)
        self.classes[class_name] = kind
        if isinstance(value, list | deque) and (numbers := packed(value)) is not None:
            return ["numbers", class_name, *numbers]
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
            return ["closure", path_of(value), cells]
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


def _is_foreign(kind: type) -> bool:
    """True if objects of a class hold more data than the attributes that Python knows of."""
    size = object.__basicsize__ + _POINTER * len(copyreg._slotnames(kind))  # type: ignore[attr-defined]
    size += _POINTER * (kind.__weakrefoffset__ > 0)
    size += _POINTER * (kind.__dictoffset__ != 0 and not kind.__flags__ & _MANAGED_DICT)
    return kind.__basicsize__ > size or kind.__itemsize__ > 0
