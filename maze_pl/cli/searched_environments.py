"""Message about a sweep whose trials are compared in different environments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.merging import REFERENCE, assembled, holder_of, is_reference
from maze_pl.runs.run_output import say

_DEFAULT: Final[Mapping[str, Any]] = {"eval": {}}
"""Evaluators of a configuration that has none."""
_EVALUATORS: Final = ("data", "evaluators")
_PARTS: Final = ("env", "wrappers")

_Keys = tuple[str, ...]
"""Keys that lead to a value in a configuration, without `init_args`."""


def tell_searched_environments(command: Sequence[str], searched: Iterable[str], metrics: Iterable[str]) -> None:
    """Tell the user if a searched option changes the environment of an evaluator by which trials are compared.

    Args:
        command: Command line of a trial after `maze-pl`, which begins with `fit`.
        searched: Searched options.
        metrics: Names of the objectives.
    """
    whole = assembled(run_and_pieces(command)[1])  # with its references
    _, evaluators = _found(_EVALUATORS, whole)
    names = evaluators if isinstance(evaluators, Mapping) else _DEFAULT
    compared = [name for name in names if any(metric.startswith((f"{name}/", f"{name}_")) for metric in metrics)]
    for option in searched:
        for name in compared:
            part = _changed_part(_keys(option), name, whole)
            if part is not None:
                fault = f"{option} also changes the evaluator {name!r}, so trials are compared in different problems"
                say(f"{fault}; a fixed data.evaluators.{name}.{part} gives it the same {part} in all trials")


def _changed_part(option: _Keys, name: str, whole: dict[str, Any]) -> str | None:
    """Return the part of the environment of an evaluator that an option changes; None if there is none.

    Args:
        option: The keys of the option.
        name: Name of the evaluator.
        whole: The configuration of a run, with its references.
    """
    for part in _PARTS:
        place, value = _found((*_EVALUATORS, name, part), whole)
        if value is None:
            place, value = _found(("data", part), whole)
        is_below = option[: len(place)] == place
        if is_below or any(_overlap(option, other) for other in _referred(value, whole)):
            return part
    return None


def _overlap(one: _Keys, other: _Keys) -> bool:
    """True if one of two values is the other one, or a part of it."""
    return all(first == second for first, second in zip(one, other, strict=False))


def _found(keys: _Keys, whole: dict[str, Any]) -> tuple[_Keys, Any]:
    """Return the value of keys, None if there is none, and its keys after references on the way to it."""
    node: Any = whole
    for number, key in enumerate(keys):
        if is_reference(node):
            return _found((*_keys(node[2:-1]), *keys[number:]), whole)
        if isinstance(node, list):
            node = {str(place): item for place, item in enumerate(node)}
        node = holder_of(node, key).get(key) if isinstance(node, dict) else None
    return keys, node


def _referred(value: Any, whole: dict[str, Any]) -> set[_Keys]:
    """Return the keys to which a value refers, directly or through others."""
    known: set[_Keys] = set()
    waiting = list(_references(value))
    while waiting:
        keys = waiting.pop()
        if keys not in known:
            place, referred = _found(keys, whole)
            known |= {keys, place}
            waiting += _references(referred)
    return known


def _references(value: Any) -> Iterator[_Keys]:
    """Yield the keys to which a value refers directly."""
    if isinstance(value, str):
        yield from (_keys(match[1]) for match in REFERENCE.finditer(value))
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for item in items:
            yield from _references(item)


def _keys(option: str) -> _Keys:
    """Return the keys of an option, or of a reference."""
    return tuple(key for key in option.removeprefix("--").rstrip("+").split(".") if key != "init_args")
