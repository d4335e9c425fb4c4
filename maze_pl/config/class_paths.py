"""Class paths that get arguments later: `--data.env my_envs.make_env --data.env.size 5`."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from maze_pl.config.pieces import COMPONENT_KEYS, CONFIG_OPTIONS, Piece

_OF_DATA = "data"  # `rollout` and `check` know its environment and wrappers without this name

Place = tuple[str, ...]
"""Names that lead to a value, without class paths and `init_args`, and without `data`."""
_STAND_FOR: Final[dict[tuple[Place, str], str]] = {
    (("model", "networks"), "auto"): "maze_pl.perception.AutomaticModelComposer",
}
"""Place and word of an option -> the class path that the word stands for."""


def complete_class_paths(pieces: Sequence[Piece]) -> None:
    """Write class paths, and words for them, as mappings if later pieces have options of these components.

    jsonargparse takes no options of a function that is named by its path alone. See `complete_environments`, too.

    Args:
        pieces: In the order in which they take effect; they are changed.
    """
    parents: set[Place] = set()
    for piece in reversed(pieces):
        start = place_of(piece)
        if piece.text is not None:
            if piece.keys[-1] != "class_path":
                piece.put(_completed(piece.content, start, parents))
            parents.update(start[:length] for length in range(1, len(start)))
            parents.update(_mappings(piece.content, start))


def complete_environments(pieces: Sequence[Piece]) -> None:
    """Write class paths of environments as mappings.

    Of functions that are named by their paths alone, jsonargparse only takes those with the right annotation.

    Args:
        pieces: They are changed.
    """
    for piece in pieces:
        if piece.text is not None and piece.keys[-1] != "class_path":
            piece.put(_completed(piece.content, place_of(piece), set()))


def is_class_path(content: Any) -> bool:
    """True if a value may be a class path alone, and does not name a file such as demos.pt."""
    is_dotted = isinstance(content, str) and "." in content and all(map(str.isidentifier, content.split(".")))
    return is_dotted and not os.path.exists(content)


def is_short_name(content: Any) -> bool:
    """True if a value may be the name of a class without its module, such as `TimeLimitWrapper`."""
    return isinstance(content, str) and content.isidentifier() and content[0].isupper()


def place_of(piece: Piece) -> Place:
    """Return the names that lead to the content of a piece."""
    keys = [] if piece.option in CONFIG_OPTIONS else [key.removesuffix("+") for key in piece.keys]
    return tuple(key for key in keys if key not in (*COMPONENT_KEYS, _OF_DATA))


def place_below(place: Place, key: Any) -> Place:
    """Return the names that lead to an entry of a mapping; class path and `init_args` are not among them."""
    return place if key in COMPONENT_KEYS or (key == _OF_DATA and not place) else (*place, str(key))


def is_environment(place: Place) -> bool:
    """True for the place of the environment of training, or of an evaluator."""
    return place == ("env",) or (len(place) == 3 and place[0] == "evaluators" and place[2] == "env")


def _completed(content: Any, place: Place, parents: set[Place]) -> Any:
    """Replace class paths at some places by mappings."""
    if isinstance(content, dict):
        return {
            key: item if key == "class_path" else _completed(item, place_below(place, key), parents)
            for key, item in content.items()
        }
    if isinstance(content, list) and content:  # later options belong to its last item
        return [*content[:-1], _completed(content[-1], place, parents)]
    if place not in parents and not is_environment(place):
        return content
    path = _STAND_FOR.get((place, content), content) if isinstance(content, str) else content
    return {"class_path": path} if is_class_path(path) else content


def _mappings(content: Any, place: Place) -> Iterator[Place]:
    """Yield the places of mappings without a class path, which are options of an earlier component."""
    if not isinstance(content, dict):
        return
    if content and "class_path" not in content:
        yield place
    for key, item in content.items():
        yield from _mappings(item, place_below(place, key))
