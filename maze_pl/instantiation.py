"""Factories from configuration: a class path and its arguments as a callable that can travel to other processes.

jsonargparse calls a *function* that a configuration names at once, and shares objects nested in a factory's arguments
between everything that the factory makes. Environments must be made several times, each with parts of its own, in the
process that steps them; so the nodes that make them are replaced by `Factory` before anything is instantiated.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from jsonargparse import ArgumentParser, Namespace


def import_object(path: str) -> Any:
    """The class or function at a dotted path.

    Raises:
        ImportError: There is no such module or attribute.
    """
    module_path, _, name = path.rpartition(".")
    if not module_path:
        raise ImportError(f"{path!r} is not a dotted path such as package.module.Name")
    try:
        return getattr(importlib.import_module(module_path), name)
    except AttributeError as error:
        raise ImportError(f"{module_path} has nothing named {name}") from error


@dataclass(frozen=True)
class Factory:
    """Calls what a class path names, with arguments from configuration.

    Attributes:
        class_path: Dotted path of a class or function.
        init_args: Its arguments; class paths nested in them are instantiated anew in each call.
        dict_kwargs: Further keyword arguments that its signature does not name.
    """

    class_path: str
    init_args: dict[str, Any] = field(default_factory=dict)
    dict_kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make one; arguments given here take the place of configured ones."""
        target = import_object(self.class_path)
        given: set[str | int] = {*list(inspect.signature(target).parameters)[: len(args)], *kwargs}
        configured = {name: value for name, value in self.init_args.items() if name not in given}
        parser = ArgumentParser(exit_on_error=False)
        if isinstance(target, type):
            parser.add_class_arguments(target, "target", skip=given, sub_configs=True, fail_untyped=False)
        else:
            parser.add_function_arguments(target, "target", skip=given, sub_configs=True, fail_untyped=False)
        config = parser.parse_object({"target": configured} if configured else {})
        arguments = parser.instantiate(with_factories(config), instantiate_groups=False).get("target")
        made = {} if arguments is None else vars(arguments)  # there is no group where there are no arguments
        return target(*args, **{**made, **self.dict_kwargs, **kwargs})


def with_factories(config: Namespace) -> Namespace:
    """A copy of a parsed configuration in which every node that makes environments, or names a function, is a Factory.

    Args:
        config: Parsed, not yet instantiated.
    """
    copy = config.clone()
    for key, value in list(vars(copy).items()):
        copy[key] = _replaced(value)
    return copy


def _replaced(value: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item) for key, item in value.items()}
    if not isinstance(value, Namespace):
        return value
    if isinstance(value.get("class_path"), str):
        target = import_object(value["class_path"])
        if inspect.isfunction(target) or (isinstance(target, type) and issubclass(target, gymnasium.Env)):
            plain = value.as_dict()
            return Factory(plain["class_path"], plain.get("init_args") or {}, plain.get("dict_kwargs") or {})
    return with_factories(value)
