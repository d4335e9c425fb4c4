"""Environments that no longer exist, and that a later file or option replaces, as after a module was renamed."""

from collections.abc import Sequence
from typing import Any

from maze_pl.config.class_paths import Place, is_environment, place_below, place_of
from maze_pl.config.pieces import Piece
from maze_pl.config.trust import LIBRARIES
from maze_pl.core.class_path import import_object


def replace_missing_environments(pieces: Sequence[Piece]) -> None:
    """Put the class path of a later piece in the place of one that cannot be imported.

    Arguments are taken over as from any other class. jsonargparse would import the earlier one, too.

    Args:
        pieces: In the order in which they take effect; all may be imported. They are changed.
    """
    later: dict[Place, str] = {}
    for piece in reversed(pieces):
        if piece.text is not None:
            is_path = piece.keys[-1] == "class_path"
            content = {"class_path": piece.content} if is_path else piece.content
            found = _replaced(content, place_of(piece), later)
            piece.put(found["class_path"] if is_path else found)


def _replaced(content: Any, place: Place, later: dict[Place, str]) -> Any:
    """Replace the environments in a part of a piece.

    Args:
        content: The part.
        place: Names that lead to it.
        later: Place of an environment -> class path that a later piece has; those of this piece are added.
    """
    if not isinstance(content, dict):
        return content
    if not is_environment(place):
        return {key: _replaced(item, place_below(place, key), later) for key, item in content.items()}
    path = content.get("class_path")
    if not isinstance(path, str):
        return content
    other = later.setdefault(place, path)
    if other == path or path.startswith(tuple(f"{name}." for name in LIBRARIES)) or _names(path) is not None:
        return content
    known = _names(other)
    if known is None:  # jsonargparse says why
        return content
    content = {**content, "class_path": other}
    arguments = content.get("init_args")
    if isinstance(arguments, dict):
        content["init_args"] = {name: value for name, value in arguments.items() if name in known}
    return content


def _names(path: str) -> set[str] | None:
    """Return the names of the arguments of a class or function; None if it cannot be imported."""
    from maze_pl.config.option_types import parameter_names  # which imports jsonargparse

    try:
        return parameter_names(import_object(path))
    except Exception:  # of the user's module
        return None
