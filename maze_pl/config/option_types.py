"""Refusal of `null` for options that need a value.

jsonargparse accepts `null` for every option, whatever its type; it would cause a traceback in the
constructor, or after an epoch. Checks of parsed options against the annotations of their classes
belong here.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonargparse import Namespace
from jsonargparse._parameter_resolvers import get_signature_parameters

from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.class_path import import_object
from maze_pl.core.option_name import option_name as option_name


def refuse_nulls(config: Any, where: str = "") -> None:
    """Refuse `null` for an option whose annotation and default do not admit it.

    Args:
        config: Parsed, not yet instantiated; or a part of it.
        where: Name of this part, for messages.

    Raises:
        ConfigurationError: Names such an option and the type that it needs.
    """
    if isinstance(config, list):
        for index, item in enumerate(config):
            refuse_nulls(item, f"{where}[{index}]")
        return
    if not isinstance(config, Namespace | dict):
        return
    entries: Mapping[Any, Any] = vars(config) if isinstance(config, Namespace) else config
    if isinstance(entries.get("class_path"), str):
        arguments = entries.get("init_args") or {}
        refuse_nulls_of(import_object(entries["class_path"]), arguments, where)
        refuse_nulls(arguments, where)
        return
    for name, value in entries.items():
        refuse_nulls(value, f"{where}.{name}".lstrip("."))


def refuse_nulls_of(target: Callable[..., Any], arguments: Any, where: str) -> None:
    """Refuse `null` among the configured arguments of one class or function; see `refuse_nulls`."""
    entries: Mapping[str, Any] = vars(arguments) if isinstance(arguments, Namespace) else arguments
    for name, value in entries.items():
        if value is not None:
            continue
        needed = _type_without_null(target, name)
        if needed is not None:
            expected = inspect.formatannotation(needed)
            if "maze_pl.schedules" in expected:
                expected = "a number or a schedule"
            raise ConfigurationError(f"{where}.{name}: expected {expected}, got null")


def _type_without_null(target: Callable[..., Any], name: str) -> Any:
    """Return a parameter's annotation that does not admit None; None if it does or is unknown."""
    parameter, annotation = _parameter(target, name)
    is_known = parameter is not None and annotation is not None
    return annotation if is_known and parameter.default is not None and not _admits_null(annotation) else None


def annotation_of(target: Callable[..., Any], name: str) -> Any:
    """Return the annotation of a parameter: Any without one, None if the parameter or its type is unknown.

    Args:
        target: A class or function.
        name: Name of the parameter; of a class, one of its bases may have it. So may a function
            to which the target passes its keyword arguments on.
    """
    parameter, annotation = _parameter(target, name)
    return annotation if parameter is not None else _annotation_passed_on(target, name)


def needs_value(target: Callable[..., Any], name: str) -> bool:
    """True for a parameter with neither default nor type; for jsonargparse, its default is None.

    Args:
        target: A class or function.
        name: Name of the parameter.
    """
    parameter, _ = _parameter(target, name)
    return parameter is not None and parameter.default is parameter.annotation is parameter.empty


def parameter_names(target: Callable[..., Any]) -> set[str]:
    """Return the names of the options that jsonargparse finds for a class or function.

    Raises:
        ValueError: It has no signature.
    """
    return {parameter.name for parameter in get_signature_parameters(target)}


def takes_other_names(target: Callable[..., Any]) -> bool:
    """True if a class or function takes keyword arguments that its signature does not name.

    Raises:
        ValueError: It has no signature.
    """
    parameters = inspect.signature(target).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _annotation_passed_on(target: Callable[..., Any], name: str) -> Any:
    """Return the annotation of a parameter that jsonargparse finds where keyword arguments are passed on."""
    try:
        parameters = get_signature_parameters(target)
    except ValueError:  # an object that is called
        return None
    for parameter in parameters:
        if parameter.name == name:
            return Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    return None


def _parameter(target: Callable[..., Any], name: str) -> tuple[Any, Any]:
    """Return a parameter and its annotation; None and None if it is unknown."""
    for function in _constructors(target):
        try:
            parameter = inspect.signature(function).parameters.get(name)
        except (TypeError, ValueError):  # compiled code may have no signature
            continue
        if parameter is None or parameter.kind is parameter.VAR_KEYWORD:
            continue
        try:
            return parameter, typing.get_type_hints(function).get(name, Any)
        except (NameError, TypeError):  # a type imported for type checkers only, or an object that is called
            return parameter, None
    return None, None


def _constructors(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions that take a call's arguments: itself, or all constructors of a class."""
    if not isinstance(target, type):
        yield target
        return
    for base in target.__mro__:
        if "__init__" in vars(base) and base is not object:
            yield vars(base)["__init__"]


def _admits_null(annotation: Any) -> bool:
    if annotation in (Any, None, object, types.NoneType) or isinstance(annotation, typing.TypeVar):
        return True
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_admits_null(choice) for choice in typing.get_args(annotation))
    return False
