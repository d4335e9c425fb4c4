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
from typing import Any, Final, NamedTuple, TypeGuard

import yaml
from jsonargparse import ArgumentParser, Namespace

from maze_pl.config.given_objects import is_given
from maze_pl.config.option_types import annotation_of
from maze_pl.config.pieces import COMPONENT_KEYS
from maze_pl.config.search_path import EXPONENT, dump, dump_lines, parse, reads_otherwise
from maze_pl.core.class_path import import_object

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LISTS: Final = (
    *(list, tuple, set, frozenset),
    *(collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, collections.abc.Set),
)
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def with_texts(config: Any, written: Any) -> Any:
    """Copy a parsed configuration with the texts that were written, before it is instantiated.

    Arguments of components that jsonargparse would read again on instantiation become further keyword
    arguments (`dict_kwargs`), which it passes on as they are.

    Args:
        config: Parsed, not yet instantiated; or a part of it.
        written: The configuration that it was parsed from; or the same part of it.
    """
    if isinstance(config, list) and isinstance(written, list) and len(config) == len(written):
        return [with_texts(item, part) for item, part in zip(config, written, strict=True)]
    if not isinstance(config, Namespace | dict) or not isinstance(written, Mapping) or is_given(config):
        return config
    if is_plain_component(config):
        return _plain_component(config, written)
    copy = config.clone() if isinstance(config, Namespace) else dict(config)
    entries: dict[str, Any] = vars(copy) if isinstance(copy, Namespace) else copy
    if isinstance(entries.get("class_path"), str):
        further = _further_arguments(entries, written)
        if isinstance(entries.get("init_args"), Namespace):
            target = _Target(entries["class_path"])
            further |= take_texts(target, entries["init_args"], arguments_of(written))
        if further:
            entries["dict_kwargs"] = further
        return copy
    for name, value in entries.items():
        if name in written:
            entries[name] = with_texts(value, written[name])
    return copy


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
        text = _argument_text(value, written[name], target, name)
        if text is not None:
            taken[name] = text.value
            delattr(arguments, name)
        else:
            vars(arguments)[name] = with_texts(value, written[name])
    return taken


class TextKeepingParser(ArgumentParser):
    """Parser that dumps a configuration with the texts that were written.

    Args:
        args: Arguments of `ArgumentParser`.
        written: The configuration that is parsed; None for the parser of a component.
        options: Arguments of `ArgumentParser`.
    """

    def __init__(self, *args: Any, written: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._written = written

    def parse_args(self, args: Any = None, *others: Any, **options: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line.

        Args:
            args: The words. For a component, jsonargparse passes a single one with a value that it
                has read already, and formatted as Python does: null as `None`.
            others: Arguments of `ArgumentParser.parse_args`.
            options: Arguments of `ArgumentParser.parse_args`.
        """
        if self._written is None and isinstance(args, list) and len(args) == 1:
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
        is_of_component = self._written is None  # which jsonargparse dumps, and loads again
        if kwargs.get("with_comments") or (is_of_component and not EXPONENT.search(text)):
            return text
        content = yaml.load(text, Loader=_LOADER)
        if not is_of_component:
            content = _saved(content, self._written)
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


def _saved(content: Any, written: Any) -> Any:
    """Copy a configuration that jsonargparse has dumped, with the texts that were written.

    Args:
        content: Dumped and loaded; or a part of it.
        written: The same part as it was written.
    """
    if isinstance(content, list) and isinstance(written, list) and len(content) == len(written):
        return [_saved(item, part) for item, part in zip(content, written, strict=True)]
    if not isinstance(content, dict) or not isinstance(written, Mapping) or is_given(content):
        return content
    if isinstance(content.get("class_path"), str):
        return _saved_component(content, written)
    return {name: _saved(value, written[name]) if name in written else value for name, value in content.items()}


def _saved_component(node: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a component that jsonargparse has dumped, with the texts that were written; see `_saved`."""
    copy = _plain_component({key: value for key, value in node.items() if key != "init_args"}, written)
    further = _further_arguments(node, written)
    if further:
        copy["dict_kwargs"] = further
    arguments = arguments_of(written)
    if isinstance(node.get("init_args"), dict):
        copy["init_args"] = dict(node["init_args"])
        for name, value in node["init_args"].items():
            if name in arguments:
                text = _argument_text(value, arguments[name], _Target(node["class_path"]), name)
                copy["init_args"][name] = _saved(value, arguments[name]) if text is None else text.value
    return copy


def is_plain_component(node: Any) -> TypeGuard[dict[str, Any]]:
    """True for a class path and arguments that are plain values to jsonargparse, such as those of a policy."""
    return isinstance(node, dict) and isinstance(node.get("class_path"), str)


def _plain_component(node: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Copy such a component with the texts that were written."""
    arguments = arguments_of(written)
    copy: dict[str, Any] = {}
    for key, value in node.items():
        if key == "init_args" and isinstance(value, dict):
            copy[key] = _plain(value, arguments)
        else:
            same = written if key in COMPONENT_KEYS else arguments
            copy[key] = _plain(value, same.get(key, value))
    return copy


def _further_arguments(node: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `dict_kwargs` of a component as they were written, unless they have changed since.

    Args:
        node: Class path and arguments, parsed or dumped.
        written: The same as it was written.
    """
    further = dict(_mapping(node.get("dict_kwargs")))
    texts = _mapping(written.get("dict_kwargs"))
    for name, value in further.items():
        if name in texts and _is_reading(value, texts[name]):
            further[name] = texts[name]
    return further


def arguments_of(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a component as they were written.

    They may stand next to the class path. jsonargparse moves further arguments that have names to the others.

    Args:
        written: The component.
    """
    besides = {key: value for key, value in written.items() if key not in COMPONENT_KEYS}
    return {**_mapping(written.get("dict_kwargs")), **besides, **_mapping(written.get("init_args"))}


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


class _Text(NamedTuple):
    """An argument with texts as they were written, which jsonargparse would read as something else.

    Attributes:
        value: The texts, perhaps in lists and mappings.
    """

    value: Any


def _argument_text(value: Any, written: Any, target: Any, name: str) -> _Text | None:
    """Return an argument with the texts that were written; None if jsonargparse leaves it as it is.

    Args:
        value: The parsed argument.
        written: As it was written.
        target: The class or function, or a `_Target`.
        name: Name of the argument.
    """
    if value == written and type(value) is type(written) and not any(map(reads_otherwise, _texts(written))):
        return None
    if isinstance(target, _Target):
        try:
            target = import_object(target.class_path)
        except (ImportError, AttributeError, ValueError):  # of an option that names no component
            return None
    return _text(value, written, annotation_of(target, name))


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


def _text(value: Any, written: Any, annotation: Any) -> _Text | None:
    """Return a value with the texts that were written; None if jsonargparse leaves it as it is.

    Args:
        value: The parsed value.
        written: As it was written.
        annotation: Its type; None if it is unknown.
    """
    choices = _choices(annotation)
    if Any in choices or object in choices or isinstance(annotation, typing.TypeVar):
        is_read_again = any(map(reads_otherwise, _texts(written))) and not _has_component(written)
        return _Text(_plain(value, written)) if is_read_again else None
    if isinstance(written, str):
        is_read = str in choices and value != written and reads_otherwise(written) and _is_reading(value, written)
        return _Text(written) if is_read else None
    if isinstance(written, list) and isinstance(value, list | tuple) and len(value) == len(written):
        items = [
            _text(item, part, _item_type(choices, index))
            for index, (item, part) in enumerate(zip(value, written, strict=True))
        ]
        if not any(items) or _has_component(value):
            return None
        pairs = zip(items, value, strict=True)
        return _Text(type(value)(item if text is None else text.value for text, item in pairs))
    if isinstance(written, dict) and isinstance(value, dict):
        texts = {key: _text(item, written.get(key), _value_type(choices)) for key, item in value.items()}
        kept = {key: text.value for key, text in texts.items() if text is not None}
        return _Text({**value, **kept}) if kept and not _has_component(value) else None
    return None


def _plain(value: Any, written: Any) -> Any:
    """Return a plain value with the texts that were written in the same places."""
    if isinstance(value, dict) and isinstance(written, Mapping):
        return {key: _plain(item, written.get(key, item)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        return [_plain(item, part) for item, part in zip(value, written, strict=True)]
    is_read = isinstance(written, str) and reads_otherwise(written) and _is_reading(value, written)
    return written if is_read else value


def _is_reading(value: Any, written: Any) -> bool:
    """True if jsonargparse may have made a value of what was written; False for a folder that was changed since.

    Args:
        value: The value, which is a text if it names a folder.
        written: As it was written.
    """
    if not isinstance(value, str):
        return True
    if not isinstance(written, str):
        return not isinstance(written, dict | list)
    # it keeps the quotes of a word where a text is wanted, and drops them where anything is
    return value == written or parse(value) == written or parse(written) == value


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
