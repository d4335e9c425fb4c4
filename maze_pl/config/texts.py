"""Texts of a configuration, as they were written.

jsonargparse reads a text again where an argument may be anything, or a text and something else: "007"
becomes 7, and "null" becomes None, each time that it parses, instantiates or dumps a configuration.
Such arguments are taken from the written configuration instead.
"""

import ast
import collections.abc
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml
from jsonargparse import ArgumentParser, Namespace

from maze_pl.config.given_objects import is_given
from maze_pl.config.option_types import annotation_of
from maze_pl.config.pieces import COMPONENT_KEYS
from maze_pl.config.search_path import EXPONENT, dump, dump_lines, reads_otherwise
from maze_pl.core.class_path import import_object

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LISTS: Final = (
    *(list, tuple, set, frozenset),
    *(collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, collections.abc.Set),
)
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def with_texts(config: Any, written: Any) -> Any:
    """Copy a parsed configuration with the texts that were written.

    Arguments of components that jsonargparse would read again on instantiation become further keyword
    arguments (`dict_kwargs`), which it passes on as they are.

    Args:
        config: Parsed, not yet instantiated; or a part of it.
        written: The configuration that it was parsed from; or the same part of it.
    """
    return _restored(config, written, is_parsed=True)


def take_texts(target: Any, arguments: Namespace, written: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the arguments that jsonargparse would read again on instantiation; return them as written.

    Args:
        target: The class or function that is called.
        arguments: Its parsed arguments, which are changed.
        written: The arguments that they were parsed from.
    """
    taken: dict[str, Any] = {}
    for name, value in list(vars(arguments).items()):
        if name not in written:
            continue
        kept, is_kept = _kept(value, written[name], target, name)
        if is_kept:
            taken[name] = kept
            delattr(arguments, name)
        else:
            vars(arguments)[name] = with_texts(value, written[name])
    return taken


class TextKeepingParser(ArgumentParser):
    """Parser that dumps a configuration with the texts that were written.

    Attributes:
        written: The configuration that is parsed; None for the parser of a component.
    """

    written: Mapping[str, Any] | None = None

    def parse_args(self, args: Any = None, *others: Any, **options: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line.

        Args:
            args: The words. For a component, jsonargparse passes a single one with a value that it
                has read already, and formatted as Python does: null as `None`.
            others: Arguments of `ArgumentParser.parse_args`.
            options: Arguments of `ArgumentParser.parse_args`.
        """
        if self.written is None and isinstance(args, list) and len(args) == 1:
            args = [_with_yaml(args[0])]
        return super().parse_args(args, *others, **options)

    def dump(self, namespace: Namespace, *args: Any, **kwargs: Any) -> str:
        """Return a configuration as YAML.

        Args:
            namespace: The parsed configuration.
            args: Arguments of `ArgumentParser.dump`.
            kwargs: Arguments of `ArgumentParser.dump`.
        """
        text = str(super().dump(namespace, *args, **kwargs))
        is_of_component = self.written is None  # which jsonargparse dumps, and loads again
        if kwargs.get("with_comments") or (is_of_component and not EXPONENT.search(text)):
            return text
        content = yaml.load(text, Loader=_LOADER)
        if not is_of_component:
            content = _restored(content, self.written, is_parsed=False)
        header = [line for line in text.splitlines(keepends=True) if line.startswith("#")]
        return "".join(header) + dump_lines(content)


def _with_yaml(word: str) -> str:
    """Return an option with its value as YAML, if Python has formatted null, a list or a mapping."""
    option, equals, text = word.partition("=")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word
    return f"{option}{equals}{dump(value)}" if value is None or isinstance(value, list | dict) else word


# ------------------------------------------------------------------------------------------------------- components


def _restored(config: Any, written: Any, *, is_parsed: bool) -> Any:
    """Copy a configuration with the texts that were written.

    Args:
        config: Parsed, or dumped and loaded; or a part of it.
        written: The same part as it was written.
        is_parsed: Whether it is parsed: only its namespaces are components, and arguments with texts
            become further keyword arguments.
    """
    if isinstance(config, list) and isinstance(written, list) and len(config) == len(written):
        return [_restored(item, part, is_parsed=is_parsed) for item, part in zip(config, written, strict=True)]
    if not isinstance(config, Namespace | dict) or not isinstance(written, Mapping) or is_given(config):
        return config
    copy = config.clone() if isinstance(config, Namespace) else dict(config)
    entries: dict[str, Any] = vars(copy) if isinstance(copy, Namespace) else copy
    if isinstance(entries.get("class_path"), str):
        if isinstance(config, Namespace) or not is_parsed:
            _restore_component(entries, written, is_parsed)
        return copy
    for name, value in entries.items():
        if name in written:
            entries[name] = _restored(value, written[name], is_parsed=is_parsed)
    return copy


def _restore_component(entries: dict[str, Any], written: Mapping[str, Any], is_parsed: bool) -> None:
    """Put the texts that were written into a component; see `_restored`.

    Args:
        entries: Class path and arguments, which are changed.
        written: Class path and arguments; `init_args` may be left out.
        is_parsed: As for `_restored`.
    """
    further = _mapping(written.get("dict_kwargs"))
    arguments = {key: value for key, value in written.items() if key not in COMPONENT_KEYS}
    # jsonargparse moves the named ones of further arguments to the others
    arguments = {**further, **arguments, **_mapping(written.get("init_args"))}
    kwargs = dict(_mapping(entries.get("dict_kwargs")))
    for name in kwargs:
        if name in further and not (isinstance(kwargs[name], str) and isinstance(further[name], dict | list)):
            kwargs[name] = further[name]
    parsed: Any = entries.get("init_args")
    if isinstance(parsed, Namespace):
        kwargs |= take_texts(_Target(entries["class_path"]), parsed, arguments)
    elif isinstance(parsed, dict):
        entries["init_args"] = parsed = dict(parsed)
        for name, value in parsed.items():
            if name in arguments:
                kept, is_kept = _kept(value, arguments[name], _Target(entries["class_path"]), name)
                parsed[name] = kept if is_kept else _restored(value, arguments[name], is_parsed=is_parsed)
    if kwargs:
        entries["dict_kwargs"] = kwargs


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, also from a namespace; an empty one for any other value."""
    if isinstance(value, Namespace):
        return vars(value)
    return value if isinstance(value, Mapping) else {}


class _Target:
    """Class path that is imported if its annotations are needed, which is rare."""

    def __init__(self, class_path: str) -> None:
        self.class_path = class_path


# --------------------------------------------------------------------------------------------------------- arguments


def _kept(value: Any, written: Any, target: Any, name: str) -> tuple[Any, bool]:
    """Return an argument, and whether it is taken from the written configuration.

    Args:
        value: The parsed argument.
        written: As it was written.
        target: The class or function, or a `_Target`.
        name: Name of the argument.
    """
    if value == written and type(value) is type(written) and not any(map(reads_otherwise, _texts(written))):
        return value, False
    if isinstance(target, _Target):
        try:
            target = import_object(target.class_path)
        except (ImportError, AttributeError, ValueError):  # of an option that names no component
            return value, False
    return _as_written(value, written, annotation_of(target, name))


def _texts(content: Any) -> Iterable[str]:
    """Yield the texts in plain values; nothing for a component."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for item in content:
            yield from _texts(item)
    elif isinstance(content, dict) and "class_path" not in content:
        for item in content.values():
            yield from _texts(item)


def _as_written(value: Any, written: Any, annotation: Any) -> tuple[Any, bool]:
    """Return a value, and whether texts in it are those of the written configuration.

    Args:
        value: The parsed value.
        written: As it was written.
        annotation: Its type; None if it is unknown.
    """
    if annotation in (Any, object) or isinstance(annotation, typing.TypeVar):
        is_kept = any(map(reads_otherwise, _texts(written))) and not _has_component(written)
        return (written, True) if is_kept else (value, False)
    choices = _choices(annotation)
    if Any in choices or object in choices:
        return _as_written(value, written, Any)
    if isinstance(written, str):
        is_kept = str in choices and value != written and reads_otherwise(written)
        return (written, True) if is_kept else (value, False)
    if isinstance(written, list) and isinstance(value, list | tuple) and len(value) == len(written):
        pairs = [
            _as_written(item, part, _item_type(choices, index))
            for index, (item, part) in enumerate(zip(value, written, strict=True))
        ]
        is_kept = any(kept for _, kept in pairs) and not _has_component(value)
        return (type(value)(item for item, _ in pairs), True) if is_kept else (value, False)
    if isinstance(written, dict) and isinstance(value, dict):
        items = {key: _as_written(item, written.get(key), _value_type(choices)) for key, item in value.items()}
        is_kept = any(kept for _, kept in items.values()) and not _has_component(value)
        return ({key: item for key, (item, _) in items.items()}, True) if is_kept else (value, False)
    return value, False


def _has_component(content: Any) -> bool:
    """True if a value contains a class path with arguments, which must be instantiated."""
    if isinstance(content, Namespace) or (isinstance(content, dict) and "class_path" in content):
        return True
    items = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    return any(map(_has_component, items))


def _choices(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; a single one for any other type."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _item_type(choices: Iterable[Any], index: int) -> Any:
    """Return the type of an item of a list or tuple that one of some types describes; None if none does."""
    for choice in choices:
        arguments = typing.get_args(choice)
        if typing.get_origin(choice) not in _LISTS or not arguments:
            continue
        is_fixed = typing.get_origin(choice) is tuple and Ellipsis not in arguments
        return arguments[min(index, len(arguments) - 1)] if is_fixed else arguments[0]
    return None


def _value_type(choices: Iterable[Any]) -> Any:
    """Return the type of the values of a mapping that one of some types describes; None if none does."""
    for choice in choices:
        if typing.get_origin(choice) in _MAPPINGS and typing.get_args(choice):
            return typing.get_args(choice)[1]
    return None
