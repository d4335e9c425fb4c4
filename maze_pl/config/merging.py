"""Merging of the parts of a configuration, as jsonargparse merges what it parses.

| earlier value | later part | result |
|---|---|---|
| any | of an option with `+` | a list with further items |
| list | list of the same length | merged item by item |
| list | mapping, of an option below the list | merged with the last item |
| component | class path or name of a class | replaces the class path |
| component, or its path | mapping | merged, `init_args` may be omitted |
| group of options | mapping | merged |
| other mapping, as an argument | mapping | replaces it, but some entries are merged, see `merge` |
| any | anything else | replaces it |

Parts may have references (`${data.n_envs}`), whose values are known when everything is merged, and
other classes for components, which are imported to find the arguments that they take over. Such
values are `Deferred`: their parts are kept, and merged when the value is looked up.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from maze_pl.config.class_paths import is_class_path, is_short_name
from maze_pl.config.pieces import COMPONENT_KEYS, CONFIG_OPTIONS, Piece

REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_OF_OPTIONS: Final = ("evaluators", "optimizer_groups")
"""Arguments whose entries are options of a class that is not named."""


@dataclass(frozen=True)
class _Part:
    """A value of a key, to be merged into the one before it.

    Attributes:
        key: The key.
        value: The value.
        n_outer: Number of outer mappings of the value that only stand for the keys of an option.
        is_argument: Whether it is an argument of a component.
        is_appended: Whether it is appended to a list.
    """

    key: str
    value: Any
    n_outer: int = 0
    is_argument: bool = False
    is_appended: bool = False

    @property
    def is_merged(self) -> bool:
        """True unless it replaces whatever is before it."""
        is_nested = isinstance(self.value, dict | list | Deferred)
        return self.is_appended or is_nested or _names_class(self.value)


@dataclass
class Deferred:
    """A value that is merged when it is looked up, see `settled`.

    Attributes:
        parts: Values in the order in which they take effect.
    """

    parts: list[_Part]


def is_reference(value: Any) -> bool:
    """True for a text that is a single reference."""
    return isinstance(value, str) and REFERENCE.fullmatch(value) is not None


def assembled(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Merge the content of pieces; components keep all of their arguments.

    Args:
        pieces: In the order in which they take effect; later ones win.
    """
    whole: dict[str, Any] = {}
    for piece in pieces:
        add_piece(whole, piece)
    plain: dict[str, Any] = merged_by_now(whole)
    return plain


def add_piece(whole: dict[str, Any], piece: Piece) -> None:
    """Merge the content of a piece into the configuration of those before it.

    Args:
        whole: That configuration, which is changed; some of its values are `Deferred` then.
        piece: The piece.
    """
    content, keys = piece.content, piece.keys
    if piece.text is None or (piece.option in CONFIG_OPTIONS and not isinstance(content, dict)):
        return
    if piece.option in CONFIG_OPTIONS:
        merge(whole, content)
        return
    if keys[-1].endswith("+"):
        keys[-1] = keys[-1].removesuffix("+")
        content = Deferred([_Part(keys[-1], content, is_appended=True)])
    for key in reversed(keys):
        content = {key: content}
    merge(whole, content, len(keys) - 1)


def merge(
    into: dict[Any, Any],
    content: dict[Any, Any],
    n_outer: int = 0,
    is_argument: bool = False,
) -> None:
    """Merge a mapping into another one; its keys may omit `init_args`.

    Components and groups of options are merged; a class path alone, or the name of a class, replaces
    the class path of a component. Other mappings among the arguments of a component are values, and
    replaced; but components in them, and entries of `evaluators`, keep the options of earlier ones
    of the same name. So are lists, but components in one of the same length are merged with those in
    their places. An option below a list belongs to its last item.

    Args:
        into: The mapping that is changed; some of its values are `Deferred` then.
        content: A part of a configuration, which takes precedence.
        n_outer: Number of outer mappings of `content` that only stand for the keys of an option.
        is_argument: Whether the values are arguments of a component.
    """
    arguments = into.get("init_args", {})
    if isinstance(arguments, dict) and ("class_path" in into or "class_path" in content):
        besides = [name for name in into if name not in COMPONENT_KEYS]
        for name in besides:  # next to the class path
            arguments.setdefault(name, into.pop(name))
        into["init_args"] = arguments
    for key, value in content.items():
        is_waiting = isinstance(arguments, Deferred) or is_reference(arguments)
        if key not in COMPONENT_KEYS and is_waiting:
            merge(into, {"init_args": {key: value}}, n_outer + 1, is_argument)
        else:
            holder = holder_of(into, key)
            part = _Part(key, value, n_outer, is_argument or holder is not into)
            holder[key] = _merged_or_deferred(holder.get(key), part)


def _merged_or_deferred(before: Any, part: _Part) -> Any:
    """Return the value of a key after a further part of it."""
    if not _is_deferred(before, part):
        return _merged(before, part)
    earlier = before.parts if isinstance(before, Deferred) else [_Part(part.key, before)]
    later = part.value.parts if isinstance(part.value, Deferred) else [part]
    return Deferred([*earlier, *later])


def _is_deferred(before: Any, part: _Part) -> bool:
    """True if the result of merging is only known when everything is merged."""
    value = part.value
    if isinstance(before, Deferred) or is_reference(before):
        return part.is_merged or is_reference(value)
    if is_reference(value):
        is_class = _names_class(before) and part.key != "class_path"
        return isinstance(before, dict | list) or is_class
    return isinstance(value, Deferred) or _replaces_class(before, value)


def _merged(before: Any, part: _Part) -> Any:
    """Return the value of a key after a further part of it; `before` may be changed."""
    value = part.value
    if part.is_appended:
        items = before if isinstance(before, list) else [] if before is None else [before]
        return [*items, *copy.deepcopy(value if isinstance(value, list) else [value])]
    if isinstance(before, list):
        before = [copy.deepcopy(item) for item in before]  # which aliases of YAML may share
        if before and isinstance(value, dict) and part.n_outer > 0:
            return [*before[:-1], _merged_or_deferred(before[-1], part)]
        if isinstance(value, list) and len(before) == len(value):
            parts = [replace(part, value=item, is_argument=True) for item in value]
            return list(map(_merged_or_deferred, before, parts))
    if _names_class(value) and _is_component(before):
        value = {"class_path": value}
    if isinstance(value, dict) and _names_class(before):
        before = {"class_path": before}
    if isinstance(value, dict) and isinstance(before, dict):
        return _merged_mapping(before, value, part)
    return copy.deepcopy(value)


def _merged_mapping(before: dict[Any, Any], value: dict[Any, Any], part: _Part) -> dict[Any, Any]:
    """Return a mapping after a part with further entries; it may be changed."""
    is_component = not {*COMPONENT_KEYS}.isdisjoint(before)
    is_value = part.is_argument and part.n_outer <= 0 and not is_component
    if part.key in COMPONENT_KEYS:
        merge(before, value, part.n_outer - 1, True)
    elif is_value and {*COMPONENT_KEYS}.isdisjoint(value):
        before = _kept_entries(before, value, part.key)
        merge(before, value, 1, True)  # each entry is a group of options
    else:
        merge(before, value, part.n_outer - 1, part.is_argument and not is_component)
    return before


def _kept_entries(before: dict[Any, Any], value: dict[Any, Any], key: str) -> dict[Any, Any]:
    """Copy the entries of a mapping that those of a later one are merged with."""
    same = {name: copy.deepcopy(before[name]) for name in value if name in before}
    if key in _OF_OPTIONS:
        return same
    return {name: entry for name, entry in same.items() if _is_component(entry)}


def _is_component(value: Any) -> bool:
    return isinstance(value, dict) and "class_path" in value


def _names_class(value: Any) -> bool:
    return is_class_path(value) or is_short_name(value)


def _has_options(value: Any) -> bool:
    """True for a mapping with arguments of a component."""
    if not isinstance(value, dict):
        return False
    if "class_path" in value:
        return bool(value.get("init_args") or value.get("dict_kwargs"))
    return bool(value)


def _replaces_class(before: Any, value: Any) -> bool:
    """True if a value names a class or function in place of that of a component with arguments."""
    if not _is_component(before) or len(before) == 1:
        return False
    if isinstance(value, dict):
        return bool(value.get("class_path", before["class_path"]) != before["class_path"])
    return _names_class(value)


def holder_of(node: dict[Any, Any], key: str) -> dict[Any, Any]:
    """Return the mapping that a key belongs to: `init_args` if it is a component's argument."""
    arguments = node.get("init_args")
    return arguments if isinstance(arguments, dict) and key not in COMPONENT_KEYS else node


def _unchanged(value: Any, *_: Any) -> Any:
    return value


def settled(
    node: Deferred,
    resolve: Callable[[str], Any] = _unchanged,
    accepted: Callable[[dict[Any, Any], Any], dict[Any, Any]] = _unchanged,
) -> Any:
    """Merge the parts of a value. Parts of the result may be `Deferred` or references.

    Args:
        node: The value.
        resolve: Returns the value that a reference stands for.
        accepted: Returns a component without the arguments that another class or function does not
            take over, which the second argument names: its path alone, or a mapping with `class_path`.
    """
    value: Any = None
    for place, part in enumerate(node.parts):
        if place > 0 and is_reference(part.value):
            part = replace(part, value=resolve(part.value))
        if is_reference(value) and part.is_merged:
            value = resolve(value)
        has_options = any(_has_options(later.value) for later in node.parts[place + 1 :])
        part = replace(part, value=_with_class(part.value, resolve, has_options))
        value = copy.deepcopy(value)
        if _replaces_class(value, part.value):
            value = accepted(value, part.value)
        value = _merged(value, part)
    return value


def _with_class(value: Any, resolve: Callable[[str], Any], has_options: bool) -> Any:
    """Return a part with the class path that a reference stands for.

    Args:
        value: The value of the part.
        resolve: Returns the value that a reference stands for.
        has_options: Whether later parts have options of the class, so that its path becomes a
            mapping, as `complete_class_paths` writes it.
    """
    if has_options and is_class_path(value):
        return {"class_path": value}
    if isinstance(value, dict) and is_reference(value.get("class_path")):
        return {**value, "class_path": resolve(value["class_path"])}
    return value


def merged_by_now(node: Any) -> Any:
    """Return a value in which nothing is deferred; components keep all of their arguments.

    Args:
        node: A merged configuration, or a part of it.
    """
    if isinstance(node, Deferred):
        return merged_by_now(settled(node))
    if isinstance(node, dict):
        return {key: merged_by_now(item) for key, item in node.items()}
    return [merged_by_now(item) for item in node] if isinstance(node, list) else node


def value_at(keys: Sequence[str], whole: dict[str, Any]) -> Any:
    """Return the value of a dotted key in an assembled configuration; None if there is none.

    Args:
        keys: Parts of the key, which may omit `init_args`.
        whole: Result of `assembled`.
    """
    node: Any = whole
    for key in keys:
        node = holder_of(node, key).get(key) if isinstance(node, dict) else None
    return node
