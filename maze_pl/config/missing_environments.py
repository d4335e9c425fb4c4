"""Environments that a later file or option replaces.

Some no longer exist, as after a module was renamed; some have further arguments that the later ones do not take.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from maze_pl.config.class_paths import Place, is_environment, is_short_name, place_below, place_of
from maze_pl.config.pieces import Piece
from maze_pl.config.trust import LIBRARIES
from maze_pl.core.class_path import import_object


class Dropped(NamedTuple):
    """Further arguments of an environment that a later one does not take.

    Attributes:
        previous: Class path of the environment.
        current: Class path of the later one.
        arguments: Name -> value.
    """

    previous: str
    current: str
    arguments: dict[str, Any]


class _Target(NamedTuple):
    """A class or function: the names of its arguments, and whether it takes all others as well."""

    names: set[str]
    takes_others: bool


def adapt_replaced_environments(pieces: Sequence[Piece]) -> list[Dropped]:
    """Put the class path of a later piece in the place of one that cannot be imported, and drop further arguments.

    Arguments are taken over as from any other class. jsonargparse would import the earlier one, too, and
    pass all of its further arguments (`dict_kwargs`) to the later one.

    Args:
        pieces: In the order in which they take effect; all may be imported. They are changed.

    Returns:
        The further arguments that are dropped, those of the last piece first.
    """
    later: dict[Place, str] = {}
    dropped: list[Dropped] = []
    for piece in reversed(pieces):
        if piece.text is not None:
            is_path = piece.keys[-1] == "class_path"
            content = {"class_path": piece.content} if is_path else piece.content
            found = _adapted(content, place_of(piece), later, dropped)
            piece.put(found["class_path"] if is_path else found)
    return dropped


def _adapted(content: Any, place: Place, later: dict[Place, str], dropped: list[Dropped]) -> Any:
    """Adapt the environments in a part of a piece.

    Args:
        content: The part.
        place: Names that lead to it.
        later: Place of an environment -> class path that a later piece has; those of this piece are added.
        dropped: Further arguments that are dropped; those of this piece are added.
    """
    if not isinstance(content, dict):
        return content
    if not is_environment(place):
        return {key: _adapted(item, place_below(place, key), later, dropped) for key, item in content.items()}
    path = content.get("class_path")
    if not isinstance(path, str):
        return content
    other = later.setdefault(place, path)
    further = content.get("dict_kwargs")
    is_missing = other != path and _is_missing(path)
    target = _target(other) if is_missing or (other != path and isinstance(further, dict)) else None
    if target is None:  # if it cannot be imported, jsonargparse says why
        return content
    if is_missing:
        content = {**content, "class_path": other}
        arguments = content.get("init_args")
        if isinstance(arguments, dict):
            content["init_args"] = {name: value for name, value in arguments.items() if name in target.names}
    if isinstance(further, dict) and not target.takes_others:
        kept = {name: value for name, value in further.items() if name in target.names}
        content = {**content, "dict_kwargs": kept}
        if len(kept) < len(further):
            others = {name: value for name, value in further.items() if name not in kept}
            dropped.append(Dropped(path, other, others))
    return content


def _is_missing(path: str) -> bool:
    """True if the class or function of a path cannot be imported; jsonargparse finds short names itself."""
    is_of_library = path.startswith(tuple(f"{name}." for name in LIBRARIES))
    return not is_of_library and not is_short_name(path) and _target(path) is None


def _target(path: str) -> _Target | None:
    """Return a class or function; None if it cannot be imported."""
    from maze_pl.config.option_types import parameter_names, takes_other_names  # which imports jsonargparse

    try:
        target = import_object(path)
        return _Target(parameter_names(target), takes_other_names(target))
    except Exception:  # of the user's module
        return None
