"""Factories from configuration: a class path and its arguments as a picklable callable.

jsonargparse calls a *function* in a configuration immediately, and shares objects nested in a
factory's arguments between all objects that the factory makes. Environments must be made several
times, each with separate parts, in the process that steps them; so their nodes are replaced by
`Factory` before anything is instantiated.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium
from jsonargparse import ArgumentParser, Namespace

from maze_pl.config.given_objects import put_objects
from maze_pl.config.option_types import needs_value
from maze_pl.config.search_path import as_values
from maze_pl.config.texts import arguments_of, take_texts
from maze_pl.config.trust import Trust
from maze_pl.core.class_path import import_object


@dataclass(frozen=True)
class Factory:
    """Callable of a class path, with arguments from configuration.

    Attributes:
        class_path: Dotted path of a class, function or callable object.
        init_args: Its arguments; class paths nested in them are instantiated again in each call.
        dict_kwargs: Further keyword arguments that its signature does not name.
        trust: The classes that its arguments may have.
        objects: Name -> object from Python that its arguments stand for.
    """

    class_path: str
    init_args: dict[str, Any] = field(default_factory=dict)
    dict_kwargs: dict[str, Any] = field(default_factory=dict)
    trust: Trust = field(default_factory=Trust)
    objects: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the class path with the arguments."""
        arguments = {**self.init_args, **self.dict_kwargs}
        listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return f"{self.class_path}({listed})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make an object; arguments given here override configured ones."""
        target = import_object(self.class_path)
        positional = list(inspect.signature(target).parameters)[: len(args)]
        passed: set[str | int] = {*positional, *kwargs}
        configured = {name: as_values(value) for name, value in self.init_args.items() if name not in passed}
        parser = ArgumentParser(exit_on_error=False)
        name = self.class_path.rpartition(".")[2]  # shown in messages
        add_arguments(parser, target, name, skip=passed)
        config = parser.parse_object({name: as_values(configured)} if configured else {})  # a copy, which it changes
        self.trust.require_classes(config, self.class_path)
        parsed = config.get(name)  # without arguments there is no group
        texts = {} if parsed is None else take_texts(target, parsed, configured)
        ready = with_factories(put_objects(config, self.objects), {name: configured})
        arguments = parser.instantiate(ready, instantiate_groups=False).get(name)
        made = {} if arguments is None else vars(arguments)
        made = _without_unset(made, target, configured)
        further = {name: as_values(value) for name, value in self.dict_kwargs.items() if name not in passed}
        return target(*args, **{**made, **texts, **further, **kwargs})

    @classmethod
    def of(cls, node: Mapping[str, Any], trust: Trust | None = None, objects: Mapping[str, Any] | None = None) -> Self:
        """Return the factory for a configuration node; by default all classes are trusted."""
        init_args = node.get("init_args") or {}
        dict_kwargs = node.get("dict_kwargs") or {}
        return cls(node["class_path"], init_args, dict_kwargs, trust or Trust(), dict(objects or {}))


def add_arguments(
    parser: ArgumentParser, target: Any, key: str | None = None, skip: set[str | int] | None = None
) -> list[str]:
    """Add all arguments of a class or function, also passed-on ones, to a parser; return names."""
    add = parser.add_class_arguments if isinstance(target, type) else parser.add_function_arguments
    return add(target, key, skip=skip, sub_configs=True, fail_untyped=False)


def with_factories(config: Any, written: Any) -> Any:
    """Copy a parsed configuration; nodes of environments, functions and callable objects become a `Factory`.

    Args:
        config: Parsed, not yet instantiated; or a part of it.
        written: The configuration that it was parsed from; or the same part of it.
    """
    if isinstance(config, list):
        is_same = isinstance(written, list) and len(written) == len(config)
        parts = written if is_same else [None] * len(config)
        return [with_factories(item, part) for item, part in zip(config, parts, strict=True)]
    parts = written if isinstance(written, Mapping) else {}
    if isinstance(config, dict):
        return {key: with_factories(item, parts.get(key)) for key, item in config.items()}
    if not isinstance(config, Namespace):
        return config
    if isinstance(config.get("class_path"), str):
        parts = {"init_args": arguments_of(parts)}
        target = import_object(config["class_path"])
        is_environment = isinstance(target, type) and issubclass(target, gymnasium.Env)
        if is_environment or not isinstance(target, type):
            node = config.as_dict()
            arguments = _without_unset(node.get("init_args") or {}, target, parts["init_args"])
            return Factory.of({**node, "init_args": arguments})
    copy = config.clone()
    for key, value in list(vars(copy).items()):
        copy[key] = with_factories(value, parts.get(key))
    return copy


def _without_unset(
    arguments: Mapping[str, Any], target: Callable[..., Any], written: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments without required ones that have no type and no value, so that Python misses them."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in written or not needs_value(target, name)
    }
