"""Calls of classes, functions and factories with those of some arguments that they take, by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

from maze_pl.core.class_path import import_object


@runtime_checkable
class _Configured(Protocol):
    """A class or function with arguments from configuration."""

    class_path: str
    init_args: dict[str, Any]


def call_by_name(maker: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Call a class, function or factory with what it takes of some arguments.

    Arguments that a factory or `functools.partial` has already stay as they are.

    Args:
        maker: It is called with keyword arguments only.
        available: Name -> value.

    Example:
        >>> def rule(action_spaces_dict, level=3):
        ...     return action_spaces_dict, level
        >>> call_by_name(rule, {"action_spaces_dict": "spaces", "masks": "masks"})
        ('spaces', 3)
    """
    target: Any = maker
    configured: set[str] = set()
    if isinstance(maker, _Configured):
        target, configured = import_object(maker.class_path), set(maker.init_args)
    elif isinstance(maker, partial) and _is_of_jsonargparse(maker):
        target = maker.args[-1]
    parameters = inspect.signature(target).parameters
    if isinstance(maker, partial):
        keywords = maker.keywords
        configured = {name for name in keywords if target is maker or keywords[name] is not parameters[name].default}
    names = parameters.keys() & available.keys() - configured
    return maker(**{name: available[name] for name in names})


def _is_of_jsonargparse(maker: partial[Any]) -> bool:
    """True for what jsonargparse makes of a class path: the class, with all its defaults as keywords."""
    is_of_class = bool(maker.args) and isinstance(maker.args[-1], type)
    return is_of_class and maker.func.__module__.partition(".")[0] == "jsonargparse"
