"""Groups of runs that differ only in their seed, and names by which runs and groups are told apart."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from maze_pl.config.learned_options import Seeds, commands_of_training, learned_options, learned_part
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, parse
from maze_pl.config.summary import may_be_shown
from maze_pl.core.provenance import Provenance
from maze_pl.runs.provenance import recorded_provenance
from maze_pl.runs.short_names import shortest_ending

_LENGTHS: Final = ("early_stopping", "stop_at_return")  # options that only end training
_LENGTHS_OF_TRAINER: Final = ("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time")
_MOST_DIFFERENCES: Final = 3
_MOST_LETTERS: Final = 60
_ABSENT: Final = "(absent)"


@dataclass(frozen=True)
class RunGroup:
    """Runs of the same configuration with different seeds.

    Attributes:
        name: Name for legends.
        runs: Their run directories.
        is_repeated: True if another group has the same configuration, and its seeds again.
    """

    name: str
    runs: list[Path]
    is_repeated: bool = False


def grouped_runs(runs: Sequence[Path]) -> tuple[list[RunGroup], dict[Path, ConfigurationError]]:
    """Group runs by their configuration, without seed, length of training and places of files.

    An option that a resumed run changed has both values, such as `60, then 30`. Runs of the same
    configuration and seed are not independent: if a seed occurs twice, the runs of each folder are
    a group, and a folder's second run with a seed is in another one.

    Args:
        runs: Run directories.

    Returns:
        The groups, and the faults of configurations that cannot be read. Each of these runs is a group
        by itself, after the others.
    """
    faults: dict[Path, ConfigurationError] = {}
    members: dict[str, list[Path]] = {}  # by configuration
    options: dict[str, dict[str, str]] = {}
    seeds: dict[Path, Seeds] = {}
    for run in dict.fromkeys(runs):
        try:
            flat, seeds[run] = _compared(run)
        except ConfigurationError as error:
            faults[run] = error
            continue
        key = json.dumps(flat, sort_keys=True)
        members.setdefault(key, []).append(run)
        options[key] = flat
    paths = run_names(runs)
    groups: list[RunGroup] = []
    for key, same in members.items():
        parts = _independent_parts(same, seeds)
        for part in parts:
            place = _place(part, paths) if len(parts) > 1 else ""
            name = _name(part, _differences(key, options), place)
            groups.append(RunGroup(name, part, is_repeated=len(parts) > 1))
    groups += [RunGroup(paths[run], [run]) for run in faults]
    labels = _told_apart([group.name for group in groups])
    return [replace(group, name=label) for group, label in zip(groups, labels, strict=True)], faults


def run_names(runs: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each run: its last folders, as few as tell it from the others."""
    paths = {run: os.path.abspath(run) for run in runs}
    return {run: shortest_ending(path, {*paths.values()} - {path}) for run, path in paths.items()}


def _compared(run: Path) -> tuple[dict[str, str], Seeds]:
    """Return the options by which runs are compared, as texts, and the seeds of a run."""
    learned, seeds = learned_options(run)
    flat = _without_lengths(learned)
    commands = _options_of_commands(run)
    for name, value in flat.items():
        flat[name] = _with_earlier(value, [options.get(name) for options in commands])
    return flat, seeds


def _is_unseeded(seeds: Seeds) -> bool:
    """True if a run had no seed, so that it differs from all others."""
    return (seeds[0] is None or seeds[0] is False) and seeds[1] is None


def _without_lengths(learned: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that do not only end training, as texts."""
    content = {name: value for name, value in learned.items() if name not in _LENGTHS}
    trainer = content.get("trainer")
    if isinstance(trainer, dict):
        content["trainer"] = {key: value for key, value in trainer.items() if key not in _LENGTHS_OF_TRAINER}
    return _flat(content)


def _options_of_commands(run: Path) -> list[dict[str, str]]:
    """Return the options of each command that has trained a run; nothing for a single one."""
    commands = commands_of_training(recorded_provenance(run))
    found: list[dict[str, str]] = []
    if len(commands) < 2:
        return found
    for command in commands:
        content = parse(command.get("configuration", ""))
        if isinstance(content, dict):
            options = _without_lengths(learned_part(content)[0])
            while found and not _continues(command, options, found[-1]):
                found.pop()  # it ended before its first checkpoint
            found.append(options)
    return found


def _continues(command: Provenance, options: Mapping[str, str], previous: Mapping[str, str]) -> bool:
    """True if a command may have begun with the options of a previous one, as its summary tells.

    Args:
        command: The command, whose summary lists what it changes.
        options: Its options.
        previous: Those of the previous one.
    """
    first, *lines = command.get("summary", "").splitlines() or [""]
    if not first.removesuffix(", with").endswith(RUN_CONFIG):
        return True  # the summary does not compare it with the run
    changes = dict(line.strip().partition(": ")[::2] for line in lines)
    for name, value in previous.items():
        if name in options and options[name] != value:
            change = changes.get(name.removesuffix(".class_path"), "")
            is_none = value == "null" and change != "" and "(instead of" not in change
            _, begins, shown = change.removesuffix(")").rpartition("(instead of ")
            is_shown = begins != "" and may_be_shown(shown, json.loads(value))
            if not is_none and not is_shown:
                return False
    return True


def _with_earlier(value: str, of_commands: Sequence[str | None]) -> str:
    """Return an option's value after those that earlier commands gave it: `60, then 30`."""
    if value not in of_commands:
        return value
    n_after = of_commands[::-1].index(value)  # commands that ended before their first checkpoint
    values = [_ABSENT if one is None else one for one in of_commands[: len(of_commands) - n_after]]
    return ", then ".join(one for one, _ in itertools.groupby(values))


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return values as JSON by dotted option."""
    values: dict[str, str] = {}
    for key, value in node.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        if isinstance(value, dict) and value:
            values |= _flat(value, name)
        else:
            values[name] = json.dumps(value, default=str)
    return values


def _independent_parts(runs: Sequence[Path], seeds: Mapping[Path, Seeds]) -> list[list[Path]]:
    """Split runs of a configuration if a seed occurs twice: by folder, each seed once in a part."""
    seeded = [seeds[run] for run in runs if not _is_unseeded(seeds[run])]
    if all(seeded.count(one) == 1 for one in seeded):
        return [list(runs)]
    parts: dict[tuple[Path, int], list[Path]] = {}
    played: list[tuple[Path, Seeds]] = []
    for run in runs:
        played_seed = (_folder(run), seeds[run])
        number = 0 if _is_unseeded(seeds[run]) else played.count(played_seed)
        played.append(played_seed)
        parts.setdefault((_folder(run), number), []).append(run)
    return list(parts.values())


def _folder(run: Path) -> Path:
    return Path(os.path.abspath(run)).parent


def _differences(key: str, options: Mapping[str, Mapping[str, str]]) -> str:
    """Return the options that differ from other configurations; none if they are too many."""
    others = [flat for other, flat in options.items() if other != key]
    differing = []
    for name in sorted({name for flat in options.values() for name in flat}):
        own = options[key].get(name, _ABSENT)
        if any(flat.get(name, _ABSENT) != own for flat in others):
            differing.append(f"{name}={own}")
    text = ", ".join(differing)
    return "" if len(differing) > _MOST_DIFFERENCES or len(text) > _MOST_LETTERS else text


def _place(runs: Sequence[Path], paths: Mapping[Path, str]) -> str:
    """Return the name of a single run or of the folder of several ones.

    Args:
        runs: The runs of a group.
        paths: Names of all runs.
    """
    if len(runs) == 1:
        return paths[runs[0]]
    folder = str(_folder(runs[0]))
    return shortest_ending(folder, {str(_folder(run)) for run in paths} - {folder})


def _name(runs: Sequence[Path], differences: str, place: str) -> str:
    """Return the name of a group: what differs, and its place if another one has the same."""
    if differences and place:
        return f"{differences} ({place})"
    folder = runs[0].parent.name if len(runs) > 1 else runs[0].name
    return differences or place or folder or str(runs[0])


def _told_apart(names: Sequence[str]) -> list[str]:
    """Number names that occur several times."""
    found: list[str] = []
    for name in names:
        number = 1
        candidate = name
        while candidate in found:
            number += 1
            candidate = f"{name} ({number})"
        found.append(candidate)
    return found
