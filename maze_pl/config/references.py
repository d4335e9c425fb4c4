"""References between values of a configuration: `${data.n_envs}`, and the section `variables`."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from maze_pl.config.class_paths import complete_class_paths, complete_environments, is_short_name
from maze_pl.config.merging import REFERENCE, Deferred, add_piece, holder_of, is_reference, settled
from maze_pl.config.pieces import COMPONENT_KEYS, CONFIG_OPTIONS, Piece, each_text
from maze_pl.config.replacements import Replacement, replacement
from maze_pl.config.search_path import ConfigurationError, suggestion

_VARIABLES: Final = "variables"
_RUN_DIR: Final = "run_dir"
_OWN_MODULES: Final = "maze_pl."

Fill = Callable[[Any], Any]
"""Replaces the references in a value."""


def interpolate(
    pieces: Sequence[Piece],
    take_part: Callable[[Piece, Fill], None] | None = None,
    of_data: Collection[str] = (),
) -> list[Piece]:
    """Replace references by values, and remove the variables; see `complete_class_paths`, too.

    Args:
        pieces: In the order in which they take effect; later ones win.
        take_part: Reduces a piece to what a command needs, so that references in other parts may be
            unresolved; None keeps all. Its second argument replaces the references in a value.
        of_data: Options of the command that references find below `data`, too.

    Raises:
        ConfigurationError: A reference is unresolved or circular, or an option sets a variable that
            no file has.
    """
    complete_environments(pieces)
    kept = [piece for piece in pieces if piece.keys[0] != _VARIABLES]
    classes = _Classes(pieces)
    if len(kept) < len(pieces):
        _refuse_new_variables(pieces, _assembled(kept, of_data), classes)
    whole = _assembled(pieces, of_data)
    _set_run_directory(whole, pieces)
    for piece in kept:
        where = f"the option {piece.option}" if piece.path is None else str(piece.path)
        lookup = _Lookup(whole, classes, where)
        if take_part is not None:
            take_part(piece, lookup.filled)
        content = piece.content
        if piece.option in CONFIG_OPTIONS and isinstance(content, dict):
            content = {key: value for key, value in content.items() if key != _VARIABLES}
        piece.put(lookup.filled(content))
    complete_class_paths(kept)
    return kept


def _assembled(pieces: Sequence[Piece], of_data: Collection[str]) -> dict[str, Any]:
    """Return the content of pieces, merged; some of its values are `Deferred`."""
    whole: dict[str, Any] = {}
    for piece in pieces:
        for part in (piece, *_below_data(piece, of_data)):
            add_piece(whole, part)
    return whole


def _refuse_new_variables(pieces: Sequence[Piece], known: dict[str, Any], classes: "_Classes") -> None:
    """Refuse options that set a variable which no file has.

    Args:
        pieces: All pieces.
        known: The content of those that are not such options, merged.
        classes: Classes that take the place of others.
    """
    for piece in pieces:
        if piece.keys[0] == _VARIABLES:
            key = ".".join(piece.keys).removesuffix("+")
            _Lookup(known, classes, f"the option {piece.option}").require(key)


def _below_data(piece: Piece, names: Collection[str]) -> list[Piece]:
    """Return the part of a piece that sets options of a command, as in a training configuration."""
    if piece.option in CONFIG_OPTIONS:
        content = piece.content if isinstance(piece.content, dict) else {}
        part = {name: value for name, value in content.items() if name in names}
        return [replace(piece, content={"data": part})] if part else []
    is_named = piece.keys[0].removesuffix("+") in names
    return [replace(piece, option=f"--data.{'.'.join(piece.keys)}")] if is_named else []


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


class _Classes:
    """Classes and functions that take the place of others.

    Only those that the user has named are imported.

    Args:
        pieces: All pieces; names in those of a run are not the user's.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._of_user: set[str] = set()
        for piece in pieces:
            if not piece.of_run:
                each_text(self._of_user.add, piece.content)
        self._known: dict[str, Replacement | None] = {}

    def accepted(self, node: dict[Any, Any], value: Any) -> dict[Any, Any]:
        """Return a component without the arguments that another class or function does not take over.

        A class takes over those that it has, a function that is named by its path alone none. All stay
        if it cannot be imported: then jsonargparse says why.

        Args:
            node: The component.
            value: Path of the other class or function, or name of a class of maze_pl; or a mapping with it.
        """
        path = value["class_path"] if isinstance(value, dict) else value
        if not isinstance(path, str) or path not in self._of_user:
            return node
        previous = str(node["class_path"])
        if is_short_name(path) and previous.startswith(_OWN_MODULES):
            path = f"{previous.rpartition('.')[0]}.{path}"
        if path not in self._known:
            self._known[path] = replacement(path)
        target = self._known[path]
        if target is None:
            return node
        if target.is_function and not isinstance(value, dict):
            return {}
        kept = {name: item for name, item in node.items() if name in {*COMPONENT_KEYS, *target.arguments}}
        if isinstance(kept.get("init_args"), dict):
            kept["init_args"] = target.known(kept["init_args"])
        further = kept.pop("dict_kwargs", None)
        if isinstance(further, dict):
            if isinstance(kept.get("init_args", {}), dict):  # where later options take precedence
                kept["init_args"] = {**target.known(further), **kept.get("init_args", {})}
                further = target.others(further)
            further = further if target.takes_others else target.known(further)
        return kept | ({"dict_kwargs": further} if further else {})


class _Lookup:
    """References of one piece, which are looked up in the whole configuration.

    Args:
        whole: The merged content of all pieces.
        classes: Classes that take the place of others.
        where: The piece, for messages.
    """

    def __init__(self, whole: dict[str, Any], classes: _Classes, where: str) -> None:
        self._whole = whole
        self._classes = classes
        self._where = where

    def filled(self, value: Any, referring: tuple[str, ...] = ()) -> Any:
        """Replace the references in a value; a text that is a single reference becomes its value.

        Args:
            value: The value.
            referring: References that are being looked up, the outermost first.

        Raises:
            ConfigurationError: A reference is unresolved or circular.
        """
        if isinstance(value, Deferred):
            return self.filled(self._opened(value, referring), referring)
        if isinstance(value, dict):
            return {key: self.filled(item, referring) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item, referring) for item in value]
        if is_reference(value):
            found, referring = self._found(value[2:-1], referring)
            return self.filled(found, referring)
        if not isinstance(value, str) or "${" not in value:
            return value
        return REFERENCE.sub(lambda match: str(self.filled(match[0], referring)), value)

    def require(self, key: str) -> None:
        """Refuse a dotted key that has no value.

        Args:
            key: The key.

        Raises:
            ConfigurationError: It has none, or a reference to it is unresolved or circular.
        """
        self._found(key, ())

    def _found(self, key: str, referring: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """Return the value of a reference, which may have others, and the references up to it."""
        if key in referring:
            raise ConfigurationError(f"{self._where}: {' refers to '.join([*referring, key])}")
        referring = (*referring, key)

        def opened(node: Any) -> Any:
            return self._opened(node, referring)

        return _look_up(key.split("."), self._whole, self._where, opened), referring

    def _opened(self, node: Any, referring: tuple[str, ...]) -> Any:
        """Return a value that is neither deferred nor a reference, though its parts may be."""
        if isinstance(node, Deferred):
            node = settled(node, lambda text: self._opened(text, referring), self._classes.accepted)
            return self._opened(node, referring)
        if is_reference(node):
            found, referring = self._found(node[2:-1], referring)
            return self._opened(found, referring)
        return node


def _look_up(
    keys: Sequence[str],
    whole: dict[str, Any],
    where: str,
    opened: Fill,
) -> Any:
    """Return the value of a dotted key.

    Args:
        keys: Parts of the key, which may omit `init_args`.
        whole: The configuration.
        where: Beginning of the message of a ConfigurationError.
        opened: Returns the value in place of one that is deferred or a reference.
    """
    node: Any = whole
    for index, key in enumerate(keys):
        node = opened(node)
        if isinstance(node, list):
            node = {str(n): item for n, item in enumerate(node)}
        if isinstance(node, dict) and "init_args" in node:
            node = {**node, "init_args": opened(node["init_args"])}
        node = holder_of(node, key) if isinstance(node, dict) else {}
        if key not in node:
            known = [".".join([*keys[:index], str(other)]) for other in node]
            near = suggestion(".".join(keys[: index + 1]), known)
            problem = f"which is not set by any configuration file or option{near}"
            raise ConfigurationError(f"{where} refers to {'.'.join(keys)}, {problem}")
        node = node[key]
    return node
