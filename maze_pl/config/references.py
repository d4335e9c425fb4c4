"""References between values of a configuration: `${data.n_envs}`, and the section `variables`."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from maze_pl.config.class_paths import complete_class_paths, is_class_path, is_short_name
from maze_pl.config.pieces import COMPONENT_KEYS, CONFIG_OPTIONS, Piece, each_text
from maze_pl.config.search_path import ConfigurationError, suggestion
from maze_pl.core.class_path import import_object

_VARIABLES = "variables"
_RUN_DIR = "run_dir"
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")

Fill = Callable[[Any], Any]
"""Replaces the references in a value."""


class _Successor(str):
    """A class path in place of another one, whose arguments it takes over if the new class has them."""

    __slots__ = ()


class _Appended(str):
    """A reference among the items of a list, which stands for all items of the list that it refers to."""

    __slots__ = ()


def interpolate(pieces: Sequence[Piece], take_part: Callable[[Piece, Fill], None] | None = None) -> list[Piece]:
    """Replace references by values, and remove the variables; see `complete_class_paths`, too.

    Args:
        pieces: In the order in which they take effect; later ones win.
        take_part: Reduces a piece to what a command needs, so that references in other parts may be
            unresolved; None keeps all. Its second argument replaces the references in a value.

    Raises:
        ConfigurationError: A reference is unresolved or circular, or an option sets a variable that
            no file has.
    """
    whole: dict[str, Any] = {}
    kept = []
    for piece in pieces:
        is_variable = piece.keys[0] == _VARIABLES
        if is_variable:
            _look_up(piece.keys, whole, f"the option {piece.option}")
        _add(whole, piece)
        if piece.of_run:  # which may not have its classes imported
            whole = without_marks(whole)
        if not is_variable:
            kept.append(piece)
    _set_run_directory(whole, pieces)
    for piece in kept:
        where = f"the option {piece.option}" if piece.path is None else str(piece.path)

        def fill(value: Any, where: str = where) -> Any:
            return each_text(_filled, value, whole, where, ())

        if take_part is not None:
            take_part(piece, fill)
        content = piece.content
        if piece.option in CONFIG_OPTIONS and isinstance(content, dict):
            content = {key: value for key, value in content.items() if key != _VARIABLES}
        piece.put(fill(content))
    complete_class_paths(kept)
    return kept


def _set_run_directory(whole: dict[str, Any], pieces: Sequence[Piece]) -> None:
    """Let `${run_dir}` stand for the run directory as it was written, which may look like a date or a number.

    In a resumed run, it is the directory of that run; in other runs, that of the source counts for nothing.

    Args:
        whole: The assembled configuration, which is changed.
        pieces: All pieces.
    """
    if whole.get(_RUN_DIR, "") is None:
        del whole[_RUN_DIR]
    for piece in pieces:
        if piece.option in ("--resume", "--run_dir") and piece.text is not None and piece.content is not None:
            whole[_RUN_DIR] = piece.content if type(piece.content) is str else piece.text


def assembled(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Merge the content of pieces without references, as jsonargparse merges what it parses.

    Args:
        pieces: In the order in which they take effect; later ones win.
    """
    whole: dict[str, Any] = {}
    for piece in pieces:
        _add(whole, piece)
    return without_marks(whole)


def _add(whole: dict[str, Any], piece: Piece) -> None:
    """Merge the content of a piece into the configuration of those before it."""
    content = piece.as_in_file
    if piece.text is None or not isinstance(content, dict):
        return
    if piece.keys[-1].endswith("+"):
        _append(whole, piece.keys, piece.content)
    else:
        merge(whole, content, n_outer_keys(piece))


def _append(whole: dict[str, Any], keys: Sequence[str], content: Any) -> None:
    """Append to the list that keys lead to, the last of which ends with a plus sign."""
    node: Any = whole
    for key in keys[:-1]:
        node = _holder(node, key).setdefault(key, {})
        if not isinstance(node, dict):  # a class path without arguments, which cannot hold a list
            return
    name = keys[-1].removesuffix("+")
    holder = _holder(node, name)
    before = holder.get(name)
    items = before if isinstance(before, list) else [] if before is None else [_as_appended(before)]
    added = content if isinstance(content, list) else [_as_appended(content)]
    holder[name] = [*items, *copy.deepcopy(added)]


def _as_appended(item: Any) -> Any:
    """Return the only item of a list; if it is a reference, that may be one to a list."""
    return _Appended(item) if isinstance(item, str) and _REFERENCE.fullmatch(item) else item


def merge(into: dict[Any, Any], content: dict[Any, Any], n_keys: int = 0, is_argument: bool = False) -> None:
    """Merge a mapping into another one, as jsonargparse does; its keys may omit `init_args`.

    Components and groups of options are merged; a class path alone, or the name of a class, replaces the
    class path of a component. Other mappings among the arguments of a component, such as `evaluators`, are
    values, and replaced. An option below a list belongs to its last item.

    Args:
        into: The mapping that is changed. Class paths that replace others are marked; see `without_marks`.
        content: A part of a configuration, which takes precedence.
        n_keys: Number of outer mappings of `content` that only stand for the keys of an option.
        is_argument: Whether the values are arguments of a component.
    """
    for key, value in content.items():
        holder = _holder(into, key)
        is_in_component = is_argument or holder is not into
        before = holder.get(key)
        if isinstance(before, list) and before and isinstance(value, dict) and n_keys > 0:
            last = before[-1]  # which an alias of YAML may share with other items
            before[-1] = {"class_path": last} if isinstance(last, str) else copy.deepcopy(last)
            before = before[-1]
        if isinstance(before, dict) and "class_path" in before and (is_class_path(value) or is_short_name(value)):
            merge(before, {"class_path": value})
        elif key == "class_path" and isinstance(before, str) and isinstance(value, str):
            holder[key] = before if value == before else _Successor(value)
        elif not isinstance(value, dict) or not isinstance(before, dict):
            holder[key] = copy.deepcopy(value)
        elif key in COMPONENT_KEYS:
            merge(before, value, n_keys - 1, True)
        elif n_keys > 0 or not is_in_component or {*before, *value} & {*COMPONENT_KEYS}:
            merge(before, value, n_keys - 1, is_in_component and not {*before} & {*COMPONENT_KEYS})
        else:
            holder[key] = copy.deepcopy(value)


def without_marks(whole: dict[str, Any]) -> dict[str, Any]:
    """Return a merged configuration whose texts are as they were written.

    Args:
        whole: Result of `merge`.
    """
    plain: dict[str, Any] = each_text(_without_mark, whole)
    return plain


def _without_mark(text: str) -> str:
    """Return a text as it was written."""
    return str(text) if isinstance(text, _Successor | _Appended) else text


def n_outer_keys(piece: Piece) -> int:
    """Return the number of mappings in a piece's `as_in_file` that only stand for the keys of its option."""
    return 0 if piece.option in CONFIG_OPTIONS else len(piece.keys) - 1


def _holder(node: dict[Any, Any], key: str) -> dict[Any, Any]:
    """Return the mapping that a key belongs to: `init_args` if it is a component's argument."""
    arguments = node.get("init_args")
    return arguments if isinstance(arguments, dict) and key not in COMPONENT_KEYS else node


def _accepted(node: dict[Any, Any]) -> dict[Any, Any]:
    """Return a mapping without the arguments that only the class had which another one has replaced.

    All arguments stay if the new class cannot be imported: then jsonargparse says why.
    """
    path, arguments = node.get("class_path"), node.get("init_args")
    if not isinstance(path, _Successor) or not isinstance(arguments, dict) or not is_class_path(path):
        return node
    from maze_pl.config.option_types import parameter_names  # which imports jsonargparse

    try:
        known = parameter_names(import_object(path))
    except Exception:  # of the user's module
        return node
    return {**node, "init_args": {name: value for name, value in arguments.items() if name in known}}


def value_at(keys: Sequence[str], whole: dict[str, Any]) -> Any:
    """Return the value of a dotted key in an assembled configuration; None if there is none.

    Args:
        keys: Parts of the key, which may omit `init_args`.
        whole: Result of `assembled`.
    """
    node: Any = whole
    for key in keys:
        node = _holder(node, key).get(key) if isinstance(node, dict) else None
    return node


def _look_up(keys: Sequence[str], whole: dict[Any, Any], where: str) -> Any:
    """Return the value of a dotted key; a ConfigurationError begins with `where`."""
    node: Any = whole
    for index, key in enumerate(keys):
        if isinstance(node, list):
            node = {str(n): item for n, item in enumerate(node)}
        node = _holder(_accepted(node), key) if isinstance(node, dict) else {}
        if key not in node:
            known = [".".join([*keys[:index], str(other)]) for other in node]
            near = suggestion(".".join(keys[: index + 1]), known)
            problem = f"which is not set by any configuration file or option{near}"
            raise ConfigurationError(f"{where} refers to {'.'.join(keys)}, {problem}")
        node = node[key]
    return node


def _filled(text: str, whole: dict[str, Any], where: str, referring: tuple[str, ...]) -> Any:
    """Replace the references in a text; a text that is a single reference becomes its value."""

    def value_of(key: str) -> Any:
        if key in referring:
            raise ConfigurationError(f"{where}: {' refers to '.join([*referring, key])}")
        return resolved(_look_up(key.split("."), whole, where), (*referring, key))

    def resolved(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: resolved(item, path) for key, item in _accepted(value).items()}
        if not isinstance(value, list):
            return _filled(value, whole, where, path) if isinstance(value, str) else value
        items: list[Any] = []
        for item in value:
            found = resolved(item, path)
            items += found if isinstance(item, _Appended) and isinstance(found, list) else [found]
        return items

    if "${" not in text:
        return _without_mark(text)
    single = _REFERENCE.fullmatch(text)
    if single is not None:
        return value_of(single[1])
    return _REFERENCE.sub(lambda match: str(value_of(match[1])), text)
