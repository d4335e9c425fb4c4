"""Messages about unknown options of a command whose configuration has sections, such as `model` and `data`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from jsonargparse import ArgumentParser

from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.factories import add_arguments
from maze_pl.config.messages import explain
from maze_pl.config.nearest_names import nearest_option
from maze_pl.config.pieces import COMPONENT_KEYS, CONFIG_OPTIONS, Piece
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.class_path import import_object
from maze_pl.system.atomic_files import shown_path

_OF_FILES: Final = ("base", "variables")
_COMPONENTS: Final = ("model", "data")


def refused_options(
    error: Exception, options: Iterable[str], words: Sequence[str], command: Sequence[str]
) -> ConfigurationError:
    """Return the error about options of a command that jsonargparse refuses; see `explain`, too.

    A section that does not exist comes first, as it may be the cause of other errors.

    Args:
        error: The error of jsonargparse.
        options: The names of all options, without those of components.
        words: The command line for jsonargparse.
        command: The command line as the user gave it.
    """
    known = list(options)
    sections = {*_OF_FILES, *(name.partition(".")[0] for name in known)}
    pieces = run_and_pieces(command)[1]
    for piece in pieces:
        for name, content in _components(piece):
            known += component_options(content, name)
    for piece in pieces:
        content = piece.content if piece.option in CONFIG_OPTIONS else None
        keys = map(str, content) if isinstance(content, dict) else ()
        unknown = [key for key in keys if key.partition(".")[0].removesuffix("+") not in sections]
        if unknown:
            place = "--config" if piece.path is None else shown_path(piece.path)
            near = nearest_option(unknown[0], [*known, *_OF_FILES])
            return ConfigurationError(f"{place}: there is no option {unknown[0]!r}{near}")
    return ConfigurationError(explain(str(error), known, words))


def _components(piece: Piece) -> list[tuple[str, Any]]:
    """Return the names of the components that a piece describes, with their content."""
    if piece.option not in CONFIG_OPTIONS:
        name = ".".join(key.removesuffix("+") for key in piece.keys if key not in COMPONENT_KEYS)
        return [(name, piece.content)] if name.startswith(_COMPONENTS) else []
    content = piece.content if isinstance(piece.content, dict) else {}
    return [(name, content.get(name)) for name in _COMPONENTS]


def component_options(node: Any, name: str) -> Iterator[str]:
    """Yield the names of all options of the components in a part of a configuration.

    Args:
        node: The part; options below a list are those of its last item.
        name: Name of this part, such as `data.env`.
    """
    if isinstance(node, list):
        node = node[-1] if node else None
    if not isinstance(node, Mapping):
        return
    class_path = node.get("class_path")
    if isinstance(class_path, str):
        try:
            names = add_arguments(ArgumentParser(), import_object(class_path))
        except Exception:  # of user code, too; the message is about something else
            names = []
        yield from (f"{name}.{option}" for option in names)
    parts = node.get("init_args")
    entries = {**node, **(parts if isinstance(parts, Mapping) else {})}
    for key, value in entries.items():
        if key not in COMPONENT_KEYS:
            yield from component_options(value, f"{name}.{key}")
