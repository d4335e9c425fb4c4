"""Calls of classes, functions and factories with those of some arguments that they take, by name."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from maze_pl.core.class_path import import_object

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class MissingArgumentError(ValueError):
    """A class or function requires an argument that it does not get."""


@runtime_checkable
class _Configured(Protocol):
    """A class or function with arguments from configuration."""

    class_path: str
    init_args: dict[str, Any]
    dict_kwargs: dict[str, Any]


def call_by_name(maker: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Call a class, function or factory with what it takes of some arguments.

    Arguments that a factory or `functools.partial` has already stay as they are. If the class or
    function has `**kwargs`, it also takes what it passes on to its base classes or to others, and
    everything if it names no argument and cannot be seen to pass any on.

    Args:
        maker: It is called with keyword arguments only.
        available: Name -> value.

    Raises:
        MissingArgumentError: It requires an argument that is neither configured nor available.

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
    defaults = _defaults_of(target, available)
    if isinstance(maker, partial):
        keywords = maker.keywords
        configured = {name for name in keywords if target is maker or keywords[name] is not defaults.get(name)}
    known = configured | available.keys()
    required = [name for name, default in defaults.items() if default is Parameter.empty]
    missing = [repr(name) for name in required if name not in known]
    if missing:
        callee = _callee_of(target)
        came = f"{getattr(callee, '__name__', callee)} requires {', '.join(missing)}"
        raise MissingArgumentError(f"{came}; its arguments are passed by name: {', '.join(available)}")
    names = defaults.keys() & available.keys() - configured
    return maker(**{name: available[name] for name in names})


def made_by_name(option: str, maker: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Make the policy of an option; see `call_by_name`.

    Args:
        option: Name of the option.
        maker: Class, function or factory that makes the policy.
        available: The arguments by name.

    Raises:
        ValueError: It requires an argument that is not available.
    """
    try:
        return call_by_name(maker, available)
    except MissingArgumentError as error:
        raise ValueError(f"{option} cannot make a policy: {error}") from error


def _defaults_of(target: Any, available: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default of each argument by name, `Parameter.empty` if there is none.

    Arguments that `**kwargs` stands for are included: those that are available if it cannot be
    seen which.
    """
    parameters = inspect.signature(target).parameters
    defaults = {}
    for name, parameter in parameters.items():
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            defaults[name] = parameter.default
    has_further = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    callee = _callee_of(target)
    if has_further and (isinstance(callee, type) or inspect.isroutine(callee)):
        from jsonargparse import ArgumentParser  # which takes long to import

        of_callee = inspect.signature(callee).parameters
        parser = ArgumentParser(exit_on_error=False)
        add = parser.add_class_arguments if isinstance(callee, type) else parser.add_function_arguments
        further = [name for name in add(callee, fail_untyped=False) if name not in of_callee]
        defaults |= {name: _default_in(parser, name) for name in further}
    if has_further and not defaults:
        return dict.fromkeys(available)
    return defaults


def _default_in(parser: "ArgumentParser", name: str) -> Any:
    """Return the default of an argument; None if the parser only has those of its fields."""
    try:
        return parser.get_default(name)
    except KeyError:
        return None


def _callee_of(target: Any) -> Any:
    return target.func if isinstance(target, partial) else target


def _is_of_jsonargparse(maker: partial[Any]) -> bool:
    """True for what jsonargparse makes of a class path: the class, with all its defaults as keywords."""
    is_of_class = bool(maker.args) and isinstance(maker.args[-1], type)
    return is_of_class and maker.func.__module__.partition(".")[0] == "jsonargparse"
