"""Calls of classes, functions and factories with those of some arguments that they take, by name."""

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from maze_pl.core.class_path import import_object

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_REFUSING: Final = ("builtins.object", "torch.nn.modules.module.Module")
"""Classes whose constructors take `**kwargs` only to refuse them."""


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
    function has `**kwargs`, it also takes what it passes on to its base classes or to others. It
    takes everything if it names no argument, cannot be seen to pass any on, and is not a class
    that does nothing but pass them on to its base classes.

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
    missing += [f"{name!r} by position" for name in _required_by_position(target)]
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
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            defaults[name] = parameter.default
    has_further = _further_of(target) is not None
    callee = _callee_of(target)
    if has_further and (isinstance(callee, type) or inspect.isroutine(callee)):
        from jsonargparse import ArgumentParser  # which takes long to import

        of_callee = inspect.signature(callee).parameters
        parser = ArgumentParser(exit_on_error=False)
        add = parser.add_class_arguments if isinstance(callee, type) else parser.add_function_arguments
        further = [name for name in add(callee, fail_untyped=False) if name not in of_callee]
        defaults |= {name: _default_in(parser, name) for name in further}
    if has_further and not defaults and not (isinstance(callee, type) and _only_passes_on(callee)):
        return dict.fromkeys(available)
    return defaults


def _required_by_position(target: Any) -> list[str]:
    """Return the names of arguments without a default that cannot be passed by name."""
    parameters = inspect.signature(target).parameters.values()
    by_position = [part for part in parameters if part.kind is Parameter.POSITIONAL_ONLY]
    return [parameter.name for parameter in by_position if parameter.default is Parameter.empty]


def _further_of(function: Any) -> str | None:
    """Return the name of the `**kwargs` of a class or function; None if it has none."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            return parameter.name
    return None


def _only_passes_on(kind: type) -> bool:
    """True if a class passes `**kwargs` on to its base classes, and none of their constructors reads them."""
    for base in kind.__mro__:
        constructor = vars(base).get("__init__")
        if f"{base.__module__}.{base.__qualname__}" in _REFUSING:
            return True
        if constructor is None:
            continue
        try:
            tree = ast.parse(dedent(inspect.getsource(constructor)))
        except (OSError, TypeError, SyntaxError):  # its source is not known
            return False
        further = _further_of(constructor)
        if further is None:
            return True
        nodes = [*ast.walk(tree)]
        n_uses = sum(isinstance(node, ast.Name) and node.id == further for node in nodes)
        if n_uses > sum(_passes_on(node, further) for node in nodes):
            return False
    return True


def _passes_on(node: ast.AST, further: str) -> bool:
    """True for the call of another constructor with the `**kwargs` of this one."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    passed = [keyword.value for keyword in node.keywords if keyword.arg is None]
    names = [value.id for value in passed if isinstance(value, ast.Name)]
    return node.func.attr == "__init__" and further in names


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
