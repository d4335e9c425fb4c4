"""Environments that a later file or option replaces.

Some no longer exist, as after a module was renamed; some have further arguments, which jsonargparse would pass to
the later environment as they are.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from maze_pl.config.class_paths import Place, is_environment, is_short_name, place_below, place_of
from maze_pl.config.pieces import COMPONENT_KEYS, Piece, each_text
from maze_pl.config.replacements import Replacement, replacement
from maze_pl.config.trust import LIBRARIES


class Dropped(NamedTuple):
    """Arguments of an environment that a later one does not take.

    Attributes:
        previous: Class path of the environment.
        current: Class path of the later one.
        arguments: Name -> value.
    """

    previous: str
    current: str
    arguments: dict[str, Any]


def adapt_replaced_environments(pieces: Sequence[Piece]) -> list[Dropped]:
    """Let an environment that replaces another one take over its further arguments (`dict_kwargs`), too.

    Those that it names become its `init_args`, so that later options take precedence. Others stay if it
    takes any name, and are dropped if not. A class path that cannot be imported is replaced by the later
    one, as jsonargparse would import it, too. All else is left to jsonargparse.

    Args:
        pieces: In the order in which they take effect; all may be imported. They are changed.

    Returns:
        The arguments that are dropped, unless jsonargparse drops them, and says so.
    """
    contents = [_content(piece) for piece in pieces]
    parts: dict[Place, list[dict[str, Any]]] = {}
    for piece, content in zip(pieces, contents, strict=True):
        for place, part in _environments(content, place_of(piece)):
            parts.setdefault(place, []).append(part)
    dropped: list[Dropped] = []
    for parts_of_one in parts.values():
        dropped += _adapt(parts_of_one)
    for piece, content in zip(pieces, contents, strict=True):
        _put(piece, content)
    return dropped


def _content(piece: Piece) -> Any:
    """Copy the content of a piece; an option such as `--data.env.class_path` is a mapping with this key."""
    if piece.text is None:
        return None
    content = each_text(lambda text: text, piece.content)  # aliases of YAML may share mappings
    return {piece.keys[-1]: content} if piece.keys[-1] in COMPONENT_KEYS else content


def _put(piece: Piece, content: Any) -> None:
    """Replace the content of a piece by a changed copy, see `_content`."""
    key = piece.keys[-1]
    if piece.text is None:
        return
    if key in COMPONENT_KEYS and list(content) == [key]:
        content = content[key]
    elif key in COMPONENT_KEYS:
        piece.option = f"--{'.'.join(piece.keys[:-1])}"
    piece.put(content)


def _environments(content: Any, place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the environments in the content of a piece, or parts of them, with their places."""
    if isinstance(content, dict):
        if is_environment(place):
            yield place, content
            return
        for key, item in content.items():
            yield from _environments(item, place_below(place, key))


def _adapt(parts: Sequence[dict[str, Any]]) -> list[Dropped]:
    """Change the parts of an environment if it replaces another one; return the arguments that are dropped.

    Args:
        parts: In the order in which they take effect.
    """
    named = [number for number, part in enumerate(parts) if isinstance(part.get("class_path"), str)]
    others = [number for number in named if parts[number]["class_path"] != parts[named[-1]]["class_path"]]
    if not others:
        return []
    change = next(number for number in named if number > others[-1])
    path, current = parts[named[0]]["class_path"], parts[change]["class_path"]
    replaced: list[tuple[str, dict[str, Any]]] = []
    for number, part in enumerate(parts[:change]):
        path = part["class_path"] if number in named else path
        replaced.append((path, part))
    missing = {path for path, _ in replaced if path != current and _is_missing(path)}
    has_further = any("dict_kwargs" in part for _, part in replaced)
    target = replacement(current) if missing or has_further else None
    if target is None:  # if it cannot be imported, jsonargparse says why
        return []
    taken: dict[str, Any] = {}
    dropped: dict[str, dict[str, Any]] = {path: {} for path, _ in replaced}
    for path, part in replaced:
        if path in missing:
            dropped[path] |= _replace_missing(part, current, target)
        further = part.get("dict_kwargs")
        if isinstance(further, dict):
            taken |= target.known(further)
            part["dict_kwargs"] = target.others(further) if target.takes_others else {}
            dropped[path] |= {} if target.takes_others else target.others(further)
    if taken:
        parts[change]["init_args"] = {**taken, **(parts[change].get("init_args") or {})}
    return [Dropped(path, current, arguments) for path, arguments in dropped.items() if arguments]


def _replace_missing(part: dict[str, Any], path: str, target: Replacement) -> dict[str, Any]:
    """Put another class path in the place of one that cannot be imported; return the arguments that it has not.

    Args:
        part: A part of the environment, which is changed.
        path: The other class path.
        target: Its class or function.
    """
    if "class_path" in part:
        part["class_path"] = path
    arguments = part.get("init_args")
    if not isinstance(arguments, dict):
        return {}
    part["init_args"] = target.known(arguments)
    return target.others(arguments)


def _is_missing(path: str) -> bool:
    """True if the class or function of a path cannot be imported; jsonargparse finds short names itself."""
    is_of_library = path.startswith(tuple(f"{name}." for name in LIBRARIES))
    return not is_of_library and not is_short_name(path) and replacement(path) is None
