"""Summary of a command: the configuration that it starts from, and the options that differ from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from maze_pl.config import search_path
from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.merging import assembled
from maze_pl.config.pieces import CALL_OPTIONS, CONFIG_OPTIONS, RUN_CONFIG, Piece
from maze_pl.config.references import interpolate
from maze_pl.config.search_path import dump

_NOT_SHOWN = (*CALL_OPTIONS, "warm_start")
_MOST_LETTERS = 60  # length limit of a value in a summary

_BEFORE_ENTRIES = ("{", "[", ", ", "/")


@dataclass(frozen=True)
class Summary:
    """A configuration in a few lines: the file that it starts from, and the options that differ.

    Attributes:
        name: Name or path of that configuration.
        changes: Option -> (its value, its value in that configuration or None) for all differences.
    """

    name: str
    changes: dict[str, tuple[Any, Any]]

    def __str__(self) -> str:
        if not self.changes:
            return f"configuration: {self.name}"
        lines = [f"configuration: {self.name}, with"]
        for option, (value, previous) in self.changes.items():
            text, before = in_lines(value, previous)
            instead = "" if previous is None else f" (instead of {before})"
            lines.append(f"  {option}: {text}{instead}")
        return "\n".join(lines)


def summarize(arguments: Sequence[str]) -> Summary:
    """Summarise the configuration that a command starts from, and the changes to it.

    The start is the last configuration in the command that is shipped with maze_pl or from a run
    directory; without one, it is all of the user's files.

    Args:
        arguments: The command line after `maze-pl`, as for `prepare`.
    """
    pieces = interpolate(run_and_pieces(arguments)[1])
    files = [piece for piece in pieces if piece.option in CONFIG_OPTIONS and piece.path is not None]
    shipped = search_path.shipped_folder().resolve()
    known = [piece for piece in files if _is_known(piece.path, shipped)] or files
    if not known:
        return Summary("none", _changes({}, _flat(_merged(pieces))))
    first = pieces[: pieces.index(known[-1]) + 1]
    path = known[-1].path
    is_shipped = path is not None and shipped in path.resolve().parents
    name = path.stem if path is not None and is_shipped else str(path)
    return Summary(name, _changes(_flat(_merged(first)), _flat(_merged(pieces))))


def configured_value(arguments: Sequence[str], option: str) -> Any:
    """Return the value of an option in the assembled configuration; None if nothing sets it.

    Args:
        arguments: The command line after `maze-pl`, as for `prepare`.
        option: Name of a top-level option, without dashes.
    """
    return _merged(interpolate(run_and_pieces(arguments)[1])).get(option)


def _is_known(path: Path | None, shipped: Path) -> bool:
    return path is not None and (path.name == RUN_CONFIG or shipped in path.resolve().parents)


def _merged(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Merge the content of all pieces; later ones win."""
    return assembled([piece for piece in pieces if piece.keys[0] not in _NOT_SHOWN])


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted option; a class path is listed under its component's name."""
    values: dict[str, Any] = {}
    for key, value in node.items():
        name = prefix if key in ("class_path", "init_args") else f"{prefix}.{key}".lstrip(".")
        if isinstance(value, dict) and value:
            values |= _flat(value, name)
        else:
            values[name] = value
    return values


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    changes: dict[str, tuple[Any, Any]] = {}
    for name, value in after.items():
        if before.get(name) != value:
            changes[name] = (value, before.get(name))
    return changes


def in_a_line(value: Any) -> str:
    """Return a value as YAML for a summary; the end of a long one is left out."""
    return _shortened(dump(value))


def in_lines(value: Any, previous: Any) -> tuple[str, str]:
    """Return two values for a summary; where their beginnings are equal and long, these are left out.

    Args:
        value: A value.
        previous: Another one, or None.
    """
    texts = dump(value), dump(previous)
    shown = in_a_line(value), in_a_line(previous)
    if texts[0] == texts[1] or shown[0] != shown[1]:
        return shown
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    common = "".join(letter for letter, _ in pairs)
    last = min(len(common), *(len(text) - 1 for text in texts))  # so that a letter of each is shown
    marks = (common.rfind(mark, 0, last) + len(mark) for mark in _BEFORE_ENTRIES)
    start = max(len(common) - _MOST_LETTERS // 2, *marks)
    return f"... {_shortened(texts[0][start:])}", f"... {_shortened(texts[1][start:])}"


def may_be_shown(text: str, value: Any) -> bool:
    """Return True if a summary may show a value as this text, with whatever value it is compared.

    Args:
        text: As a summary shows it.
        value: A value.
    """
    middle = text.removeprefix("... ")
    if middle == text:
        return text == in_a_line(value)
    beginning = middle.removesuffix(" ...")
    whole = dump(value)
    return whole.endswith(middle) if beginning == middle else beginning in whole


def _shortened(text: str) -> str:
    """Return a text without the end of a long one."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} ..."
