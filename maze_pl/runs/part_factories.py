"""Factories of environments, wrappers and policies that Python code gives as callables or configurations."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import gymnasium

from maze_pl.config.factories import Factory
from maze_pl.config.pieces import COMPONENT_KEYS
from maze_pl.core.class_path import import_object
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.contract import describe

_TARGET: Final = "_target_"
_CONFIGURATION: Final = "a class path, or a dict with class_path and init_args"


def to_factory(part: Any, name: str) -> Any:
    """Return the factory that a configuration describes; anything else as it is.

    Args:
        part: A class path; a dict with `class_path` and `init_args` or, as in Maze, with `_target_`
            and arguments, where a class may take the place of its path; or something else.
        name: Name of the argument, for messages.

    Raises:
        TypeError: The arguments of a configuration are not a dict.
        ValueError: A configuration names no class, or has arguments next to it; or a class that cannot be
            imported has arguments with configurations.
    """
    if isinstance(part, str):
        return Factory(part)
    if not isinstance(part, Mapping):
        return part
    if _TARGET in part:
        arguments = {key: value for key, value in part.items() if key != _TARGET}
        part = {"class_path": part[_TARGET], "init_args": arguments}
    path = part.get("class_path")
    if not isinstance(path, str | type):
        remedy = "write class_path with a dotted path, and init_args with a dict of arguments"
        raise ValueError(f"{name}={dict(part)} names no class: {remedy}")
    if misplaced := [key for key in part if key not in COMPONENT_KEYS]:
        fault = f"{misplaced} stand next to the class path {_path_of(path)}"
        raise ValueError(f"{name}: {fault}: write arguments below init_args")
    for key in ("init_args", "dict_kwargs"):
        _require_mapping(part.get(key), path, name)
    if isinstance(path, type):
        arguments = {**(part.get("init_args") or {}), **(part.get("dict_kwargs") or {})}
        if not _has_configuration(arguments):
            return partial(path, **arguments)
        part = {**part, "class_path": _importable_path(path, name)}
    return Factory.of(part)


def _has_configuration(arguments: Any) -> bool:
    """True if arguments, or a part of them, are the configuration of an object."""
    if isinstance(arguments, list | tuple):
        return any(_has_configuration(item) for item in arguments)
    if not isinstance(arguments, Mapping):
        return False
    if "class_path" in arguments and arguments.keys() <= set(COMPONENT_KEYS):
        return True
    return any(_has_configuration(item) for item in arguments.values())


def _importable_path(kind: type, name: str) -> str:
    """Return the path of a class whose arguments are configurations.

    Raises:
        ValueError: The path does not lead to the class.
    """
    path = _path_of(kind)
    try:
        is_importable = import_object(path) is kind
    except ImportError:
        is_importable = False
    if not is_importable:
        remedy = "pass the objects themselves, or define the class in a module"
        raise ValueError(f"{name}: {path} cannot be imported, but its arguments are configurations; {remedy}")
    return path


def _path_of(kind: Any) -> str:
    """Return the class path of a class, or a class path as it is."""
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


def _require_mapping(arguments: Any, kind: Any, name: str) -> None:
    """Raise TypeError if the arguments of a class or class path are neither a dict nor None."""
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"{name}: the arguments of {_path_of(kind)} are {describe(arguments)}; expected a dict")


def env_or_factory(env: Any) -> Any:
    """Return an environment as it is, or the callable that makes one.

    Args:
        env: An environment, a callable that makes one, or its configuration.

    Raises:
        ImportError: There is no class or function at a class path.
        TypeError: It is something else, or the arguments of a configuration are not a dict.
        ValueError: A configuration names no class, or has arguments next to it.
    """
    if isinstance(env, gymnasium.Env | ArrayEnv):
        return env
    expected = f"an environment, a callable that makes one, {_CONFIGURATION}"
    return _callable_of(env, "env", expected)


def to_factories(wrappers: Any) -> list[Any]:
    """Return the factories of wrappers.

    Args:
        wrappers: As for `listed_wrappers`.

    Raises:
        ImportError: There is no class or function at a class path.
        TypeError: Something is neither a callable nor a configuration with a dict of arguments.
        ValueError: A configuration names no class, or has arguments next to it.
    """
    expected = f"a callable that wraps an environment, {_CONFIGURATION}"
    items = listed_wrappers(wrappers)
    return [_callable_of(item, f"wrappers[{place}]", expected) for place, item in enumerate(items)]


def listed_wrappers(wrappers: Any) -> list[Any]:
    """Return wrappers as a list of callables and configurations, the first one innermost.

    Args:
        wrappers: Such a list; a single wrapper; or a mapping from classes, or their paths, to
            arguments, as in Maze.

    Raises:
        TypeError: The arguments of a class are not a dict.
        ValueError: A class that cannot be imported has arguments with configurations.
    """
    if not isinstance(wrappers, Mapping):
        is_list = isinstance(wrappers, Iterable) and not isinstance(wrappers, str)
        return list(wrappers) if is_list else [wrappers]
    if "class_path" in wrappers or _TARGET in wrappers:
        return [wrappers]
    items = enumerate(wrappers.items())
    return [_wrapper_of(kind, arguments or {}, f"wrappers[{place}]") for place, (kind, arguments) in items]


def _wrapper_of(kind: Any, arguments: Any, name: str) -> Any:
    """Return a wrapper of a class or class path."""
    if isinstance(kind, type):
        _require_mapping(arguments, kind, name)
        if not _has_configuration(arguments):
            return partial(kind, **arguments)
        kind = _importable_path(kind, name)
    return {"class_path": kind, "init_args": arguments}


def _callable_of(part: Any, name: str, expected: str) -> Any:
    """Return a callable as it is, or the factory that a configuration describes, if its class can be imported."""
    made = to_factory(part, name)
    if not callable(made):
        raise TypeError(f"{name} is {describe(part)}; expected {expected}")
    if isinstance(made, Factory):
        try:
            import_object(made.class_path)
        except ImportError as error:
            raise ImportError(f"{name}: {error}; expected {expected}") from error
    return made
