"""Statistics by which recorded observations were normalised, and those of the agent that is to read them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.core.class_path import import_object
from maze_pl.envs.building import class_of
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.runs.checkpoint_files import read_checkpoint, run_configuration, wrapper_statistics_in
from maze_pl.runs.recording_run import recording_checkpoint, recording_run
from maze_pl.runs.rollout_wrappers import rollout_folder
from maze_pl.runs.run_checkpoints import BEST

_FACT: Final = "space records keep the observations that were recorded"
_REMEDY: Final = "record states (--trajectories states), which are converted"
_OTHERS: Final = "default_statistics"
"""Stands for the observations whose statistics the configuration does not state by name."""


class Recorder(NamedTuple):
    """The run in whose environment episodes were recorded.

    Attributes:
        name: Its name.
        statistics: Statistics of wrappers that change observations, by name; None if they are unknown.
        fault: The reason why they are unknown.
    """

    name: str
    statistics: Mapping[str, Any] | None
    fault: str = ""


def observation_statistics(path: str | Path, trust: bool) -> dict[str, Any] | None:
    """Return the statistics of a run's wrappers that change observations, by name; no environment is made.

    They are those in the checkpoint, and those that the configuration states; observations that it
    excludes from normalisation have None. The result is None if the statistics are unknown, since
    the run was trained without an environment, on records as they are.

    Args:
        path: A checkpoint, or a run directory, as for `maze_pl.load`.
        trust: Whether classes of other packages may be imported; otherwise all of them count.

    Raises:
        ConfigurationError: The checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(path)
    arguments = run_configuration(checkpoint, path)["data"].get("init_args") or {}
    if "env" in arguments and arguments["env"] is None:
        return None
    found: dict[str, Any] = {}
    for name, state in wrapper_statistics_in(checkpoint, path).items():
        kind = _class_at(class_of(name), trust)
        if kind is None or issubclass(kind, ObservationWrapper):
            found[name] = state
    for name, stated in _stated_statistics(arguments.get("wrappers"), trust).items():
        if name in found or any(statistics is not None for statistics in stated.values()):
            found[name] = {**found.get(name, {}), **stated}
    return found


def _class_at(class_path: str, trust: bool) -> type | None:
    """Return a class; None if it is not to be imported, or cannot be."""
    if not (trust or class_path.startswith("maze_pl.")):
        return None
    try:
        kind = import_object(class_path)
    except (ImportError, ValueError):
        return None
    return kind if isinstance(kind, type) else None


def _stated_statistics(wrappers: Any, trust: bool) -> dict[str, dict[str, Any]]:
    """Return the statistics that the configuration of wrappers states, by name and observation.

    Args:
        wrappers: The wrappers in the configuration of a data module.
        trust: Whether classes of other packages may be imported.
    """
    nodes = [node for node in wrappers or [] if isinstance(node, Mapping)]
    paths: list[str] = []
    stated: list[dict[str, Any]] = []
    for node in nodes:
        path = str(node.get("class_path"))
        kind = _class_at(path, trust)
        if kind is None or issubclass(kind, ObservationNormalizationWrapper):
            paths.append(path if kind is None else f"{kind.__module__}.{kind.__qualname__}")
            stated.append(_stated_by(node.get("init_args") or {}))
    found = {}
    for place, path in enumerate(paths):  # names as in `wrapper_stack`
        n, number = paths.count(path), paths[: place + 1].count(path)
        found[path if n == 1 else f"{path} ({number} of {n})"] = stated[place]
    return {name: statistics for name, statistics in found.items() if statistics}


def _stated_by(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics in arguments of `ObservationNormalizationWrapper`, by observation.

    Observations that are excluded have None.
    """
    excluded = arguments.get("exclude")
    names = excluded if isinstance(excluded, list) else []
    found: dict[str, Any] = {name: None for name in names if isinstance(name, str)}
    if arguments.get("default_statistics") is not None:
        found[_OTHERS] = arguments["default_statistics"]
    manual = arguments.get("manual_config")
    settings = manual if isinstance(manual, Mapping) else {}
    for name, entry in settings.items():
        if isinstance(entry, Mapping) and entry.get("statistics") is not None:
            found[name] = entry["statistics"]
    return found


def recorder_of(folder: Path | None, trust: bool, candidate: Path | None = None) -> Recorder | None:
    """Return the run that recorded episodes, according to their rollout; None if nothing is known of it.

    Args:
        folder: Folder of the files; None for records without a file.
        trust: Whether classes of other packages may be imported.
        candidate: A checkpoint that may be a copy of the one that played.
    """
    rollout = None if folder is None else rollout_folder(folder.resolve())
    if rollout is None:
        return None
    try:
        config = read(rollout / RUN_CONFIG)
        run = recording_run(rollout, config) if isinstance(config, Mapping) else None
        if run is None or not run.exists():
            return None
        name = str(config.get("checkpoint") or BEST)
        checkpoint = recording_checkpoint(rollout, run, name, candidate)
        return recorder_at(f"the recording checkpoint {checkpoint}", checkpoint, trust)
    except ConfigurationError as error:
        return Recorder("", None, str(error))


def recorder_at(name: str, path: str | Path, trust: bool) -> Recorder:
    """Return a run as one that recorded episodes.

    Args:
        name: Its name.
        path: A checkpoint, or a run directory.
        trust: Whether classes of other packages may be imported.
    """
    statistics = observation_statistics(path, trust)
    fault = f"{name} was trained without an environment" if statistics is None else ""
    return Recorder(name, statistics, fault)


def doubts_of_observations(trained: Mapping[str, Any], recorders: Iterable[Recorder | None]) -> list[str]:
    """Return warnings if space records may not have the observations that the agent was trained with.

    Args:
        trained: Statistics of the wrappers of the agent's run that change observations, by name.
        recorders: The runs that recorded the episodes; None for an unknown one.
    """
    found = []
    for recorder in recorders:
        if recorder is None or recorder.statistics is None:
            if trained:
                reason = f", and {recorder.fault}" if recorder is not None else ""
                condition = f"unless they were normalised by the statistics of the agent's {_names(trained)}"
                found.append(f"{_FACT}{reason}: {condition}, {_REMEDY}")
            continue
        recorded = recorder.statistics
        different = [name for name in {**trained, **recorded} if not _has_equal(name, trained, recorded)]
        if different:
            statistics = f"the statistics of {_names(different)} are not the same"
            found.append(f"{_FACT}, and {statistics} in {recorder.name} and the agent's run: {_REMEDY}")
    return list(dict.fromkeys(found))


def _has_equal(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two runs have equal statistics of a wrapper."""
    return name in one and name in other and _are_equal_in_use(one[name], other[name])


def _are_equal_in_use(one: Any, other: Any) -> bool:
    """True for equal statistics, no matter whether they are stated by name or for all other observations.

    An observation without statistics is not normalised.
    """
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return are_equal(one, other)
    names = {*one, *other}
    if one and other and (_OTHERS in one) != (_OTHERS in other):
        names.discard(_OTHERS)  # without it, each normalised or excluded observation has a name
    for name in names:
        first, second = (part.get(name, part.get(_OTHERS)) for part in (one, other))
        if not are_equal(first, second):
            return False
    return True


def _names(wrappers: Iterable[str]) -> str:
    """Return the class names of wrappers, each once."""
    return " and ".join(dict.fromkeys(class_of(name).rpartition(".")[2] for name in wrappers))


def are_equal(one: Any, other: Any) -> bool:
    """True for trees of the same names with equal numbers and arrays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_equal(part, other[name]) for name, part in one.items())
    return np.array_equal(np.asarray(one), np.asarray(other))
