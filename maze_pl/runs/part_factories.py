"""Factories of environments, wrappers and policies that Python code gives as callables or configurations."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import gymnasium

from maze_pl.config.factories import Factory
from maze_pl.core.class_path import import_object
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.contract import describe

_CONFIGURATION: Final = "a class path, or a dict with class_path and init_args"


def to_factory(part: Any, name: str) -> Any:
    """Return the factory that a configuration describes; anything else as it is.

    Args:
        part: A class path, a dict with `class_path` and `init_args`, or something else.
        name: Name of the argument, for messages.

    Raises:
        TypeError: The arguments of a configuration are not a dict.
        ValueError: A configuration names no class.
    """
    if isinstance(part, str):
        return Factory(part)
    if not isinstance(part, Mapping):
        return part
    path = part.get("class_path")
    arguments = part.get("init_args") or {}
    if not isinstance(path, str):
        remedy = "write class_path with a dotted path, and init_args with a dict of arguments"
        raise ValueError(f"{name}={dict(part)} names no class: {remedy}")
    if not isinstance(arguments, Mapping):
        raise TypeError(f"{name}: the arguments of {path} are {describe(arguments)}; expected a dict")
    return Factory.of(part)


def env_or_factory(env: Any) -> Any:
    """Return an environment as it is, or the callable that makes one.

    Args:
        env: An environment, a callable that makes one, or its configuration.

    Raises:
        ImportError: There is no class or function at a class path.
        TypeError: It is something else, or the arguments of a configuration are not a dict.
        ValueError: A configuration names no class.
    """
    if isinstance(env, gymnasium.Env | ArrayEnv):
        return env
    expected = f"an environment, a callable that makes one, {_CONFIGURATION}"
    return _callable_of(env, "env", expected)


def to_factories(wrappers: Any) -> list[Any]:
    """Return the factories of wrappers.

    Args:
        wrappers: Callables or configurations, the first one innermost; a single one; or a mapping from
            class paths to arguments, as in Maze.

    Raises:
        ImportError: There is no class or function at a class path.
        TypeError: Something is neither a callable nor a configuration with a dict of arguments.
        ValueError: A configuration names no class.
    """
    items: Iterable[Any] = [wrappers]
    if isinstance(wrappers, Mapping) and "class_path" not in wrappers:
        items = [{"class_path": path, "init_args": arguments or {}} for path, arguments in wrappers.items()]
    elif isinstance(wrappers, Iterable) and not isinstance(wrappers, str | Mapping):
        items = wrappers
    expected = f"a callable that wraps an environment, {_CONFIGURATION}"
    return [_callable_of(item, f"wrappers[{place}]", expected) for place, item in enumerate(items)]


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
