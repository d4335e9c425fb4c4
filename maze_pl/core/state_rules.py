"""Rules for the state of objects: classes without state, and objects that save their state themselves."""

import copyreg
import inspect
import logging
import operator
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

PLAIN: Final = (type(None), bool, int, float, str)
"""Types of values that are their own state."""
ABSENT: Final = object()
"""Stands for an object that does not exist."""
_STATELESS: Final = (
    *(types.ModuleType, types.GenericAlias, np.dtype, np.ufunc, re.Pattern, logging.Logger, inspect.Signature),
    *(PurePath, range, slice, property, operator.attrgetter, operator.itemgetter, operator.methodcaller),
)


class StateError(TypeError):
    """The state of an object cannot be captured or restored."""


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
            return f"class {path_of(value)}"
        if isinstance(value, types.FunctionType) and not value.__closure__:
            return f"function {path_of(value)}"
        if isinstance(value, Enum):
            return f"member {path_of(type(value))}.{value.name}"
        if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | type(None)):
            return f"function {value.__module__}:{value.__qualname__}"
        if type(value) in self.stateless:
            return f"{type(value).__name__} {self.stateless[type(value)](value)}"
        return f"{type(value).__name__} {value}" if isinstance(value, _STATELESS) or value is Ellipsis else None

    def attributes_of(self, value: Any) -> dict[str, Any]:
        """Attributes of an object that hold its state."""
        slots = copyreg._slotnames(type(value))  # type: ignore[attr-defined]
        names = self.attributes.get(type(value)) or (*getattr(value, "__dict__", ()), *slots)
        return {name: found for name in names if (found := getattr(value, name, ABSENT)) is not ABSENT}


def path_of(value: Any) -> str:
    """Return the module and the qualified name of a class or function."""
    return f"{getattr(value, '__module__', '')}:{value.__qualname__}"
