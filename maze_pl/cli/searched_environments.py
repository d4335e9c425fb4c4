"""Message about a sweep whose trials are compared in different environments."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from maze_pl.config.assembling import prepare
from maze_pl.runs.run_output import say
from maze_pl.sweeps.option_places import environment_part

_DEFAULT: Final[Mapping[str, Any]] = {"eval": {}}
"""Evaluators of a configuration that has none."""


def tell_searched_environments(command: Sequence[str], searched: Iterable[str], metrics: Iterable[str]) -> None:
    """Tell the user if a searched option changes the environment of an evaluator by which trials are compared.

    Args:
        command: Command line of a trial after `maze-pl`, which begins with `fit`.
        searched: Searched options.
        metrics: Names of the objectives.
    """
    parts = {option: part for option in searched if (part := environment_part(option)) is not None}
    if not parts:
        return
    evaluators = _evaluators(prepare(command).written)
    compared = [name for name in evaluators if any(metric.startswith((f"{name}/", f"{name}_")) for metric in metrics)]
    for option, part in parts.items():
        for name in compared:
            if (evaluators[name] or {}).get(part) is None:
                fault = f"{option} also changes the evaluator {name!r}, so trials are compared in different problems"
                say(f"{fault}; data.evaluators.{name}.{part} gives it the same {part} in all trials")


def _evaluators(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the evaluators in the configuration of a run, by name."""
    data = configuration.get("data")
    arguments = data.get("init_args") if isinstance(data, Mapping) else None
    found = arguments.get("evaluators") if isinstance(arguments, Mapping) else None
    return found if isinstance(found, Mapping) else _DEFAULT
