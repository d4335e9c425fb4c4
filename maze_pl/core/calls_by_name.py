"""Calls of classes, functions and factories with those of some arguments that they take, by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from traceback import walk_tb
from typing import Any, Final, Protocol, runtime_checkable

from maze_pl.core.class_path import import_object

_CALLERS: Final = (f"{__name__}.", "jsonargparse.", "inspect.")
"""Modules that read the arguments of a class or function, or call it."""


@runtime_checkable
class _Configured(Protocol):
    """A class or function with arguments from configuration."""

    class_path: str
    init_args: dict[str, Any]
    dict_kwargs: dict[str, Any]


def call_by_name(maker: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Call a class, function or factory with what it takes of some arguments.

    Arguments that a factory or `functools.partial` has already stay as they are. If the class or
    function has `**kwargs`, it also takes what it passes on to its base classes or to others.

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
        target, configured = import_object(maker.class_path), {*maker.init_args, *maker.dict_kwargs}
    elif isinstance(maker, partial) and _is_of_jsonargparse(maker):
        target = maker.args[-1]
    defaults = _defaults_of(target)
    if isinstance(maker, partial):
        keywords = maker.keywords
        configured = {name for name in keywords if target is maker or keywords[name] is not defaults.get(name)}
    names = defaults.keys() & available.keys() - configured
    return maker(**{name: available[name] for name in names})


def made_by_name(option: str, maker: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Make the policy of an option; see `call_by_name`.

    Args:
        option: Name of the option.
        maker: Class, function or factory that makes the policy.
        available: The arguments by name.

    Raises:
        ValueError: The arguments do not fit; errors inside of the class or function stay as they are.
    """
    try:
        return call_by_name(maker, available)
    except TypeError as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        if not f"{frame.f_globals.get('__name__')}.".startswith(_CALLERS):
            raise
        named = f"its arguments are passed by name: {', '.join(available)}"
        raise ValueError(f"{option} cannot make a policy: {error}; {named}") from error


def _defaults_of(target: Any) -> dict[str, Any]:
    """Return the default of each argument by name; those that `**kwargs` stands for included."""
    parameters = inspect.signature(target).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    has_further = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    callee = target.func if isinstance(target, partial) else target
    if has_further and (isinstance(callee, type) or inspect.isroutine(callee)):
        from jsonargparse import ArgumentParser  # which takes long to import

        of_callee = inspect.signature(callee).parameters
        parser = ArgumentParser(exit_on_error=False)
        add = parser.add_class_arguments if isinstance(callee, type) else parser.add_function_arguments
        further = [name for name in add(callee, fail_untyped=False) if name not in of_callee]
        defaults |= {name: parser.get_default(name) for name in further}
    return defaults


def _is_of_jsonargparse(maker: partial[Any]) -> bool:
    """True for what jsonargparse makes of a class path: the class, with all its defaults as keywords."""
    is_of_class = bool(maker.args) and isinstance(maker.args[-1], type)
    return is_of_class and maker.func.__module__.partition(".")[0] == "jsonargparse"
