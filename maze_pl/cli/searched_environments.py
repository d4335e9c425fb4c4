"""Message about a sweep whose trials are compared in different environments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.merging import REFERENCE, assembled
from maze_pl.runs.run_output import say
from maze_pl.sweeps.option_places import environment_part

_DEFAULT: Final[Mapping[str, Any]] = {"eval": {}}
"""Evaluators of a configuration that has none."""
_PARTS: Final = ("env", "wrappers")


def tell_searched_environments(command: Sequence[str], searched: Iterable[str], metrics: Iterable[str]) -> None:
    """Tell the user if a searched option changes the environment of an evaluator by which trials are compared.

    Args:
        command: Command line of a trial after `maze-pl`, which begins with `fit`.
        searched: Searched options.
        metrics: Names of the objectives.
    """
    evaluators = _evaluators(assembled(run_and_pieces(command)[1]))  # with their references
    compared = [name for name in evaluators if any(metric.startswith((f"{name}/", f"{name}_")) for metric in metrics)]
    for option in searched:
        for name in compared:
            part = _changed_part(option, name, evaluators[name] or {})
            if part is not None:
                fault = f"{option} also changes the evaluator {name!r}, so trials are compared in different problems"
                say(f"{fault}; a fixed data.evaluators.{name}.{part} gives it the same {part} in all trials")


def _changed_part(option: str, name: str, evaluator: Any) -> str | None:
    """Return the part of the environment of an evaluator that an option changes; None if there is none.

    Args:
        option: The option.
        name: Name of the evaluator.
        evaluator: Its options, with their references.
    """
    place = _place(option)
    for part in _PARTS:
        value = evaluator.get(part) if isinstance(evaluator, Mapping) else None
        is_of_training = value is None and environment_part(option) == part
        is_of_evaluator = place.startswith(_place(f"data.evaluators.{name}.{part}"))
        is_reference = any(place.startswith(other) or other.startswith(place) for other in _references(value))
        if is_of_training or is_of_evaluator or is_reference:
            return part
    return None


def _references(value: Any) -> Iterator[str]:
    """Yield the places to which a value refers."""
    if isinstance(value, str):
        yield from (_place(match[1]) for match in REFERENCE.finditer(value))
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for item in items:
            yield from _references(item)


def _place(option: str) -> str:
    """Return an option without what may be left out, and with a dot at its end."""
    return f"{option.removeprefix('--').rstrip('+').replace('.init_args', '')}."


def _evaluators(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the evaluators in the configuration of a run, by name."""
    data = configuration.get("data")
    arguments = data.get("init_args") if isinstance(data, Mapping) else None
    found = arguments.get("evaluators") if isinstance(arguments, Mapping) else None
    return found if isinstance(found, Mapping) else _DEFAULT
