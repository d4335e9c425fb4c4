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
from maze_pl.runs.checkpoint import read_checkpoint, wrapper_statistics_in
from maze_pl.runs.recording_run import recording_checkpoint, recording_run
from maze_pl.runs.rollout_wrappers import rollout_folder
from maze_pl.runs.run_checkpoints import BEST

_FACT: Final = "space records keep the observations that were recorded"
_REMEDY: Final = "record states (--trajectories states), which are converted"


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


def observation_statistics(path: str | Path, trust: bool) -> dict[str, Any]:
    """Return the statistics of a run's wrappers that change observations, by name; no environment is made.

    Args:
        path: A checkpoint, or a run directory, as for `maze_pl.load`.
        trust: Whether classes of other packages may be imported; otherwise all of them count.

    Raises:
        ConfigurationError: The checkpoint cannot be read.
    """
    statistics = wrapper_statistics_in(read_checkpoint(path), path)
    return {name: state for name, state in statistics.items() if _may_change_observations(class_of(name), trust)}


def _may_change_observations(class_path: str, trust: bool) -> bool:
    """False for the class of a wrapper that does not change observations; one that is not imported may."""
    if not (trust or class_path.startswith("maze_pl.")):
        return True
    try:
        kind = import_object(class_path)
    except (ImportError, ValueError):
        return True
    return not isinstance(kind, type) or issubclass(kind, ObservationWrapper)


def recorder_of(folder: Path | None, trust: bool) -> Recorder | None:
    """Return the run that recorded episodes, according to their rollout; None if nothing is known of it.

    Args:
        folder: Folder of the files; None for records without a file.
        trust: Whether classes of other packages may be imported.
    """
    rollout = None if folder is None else rollout_folder(folder.resolve())
    if rollout is None:
        return None
    try:
        config = read(rollout / RUN_CONFIG)
        run = recording_run(rollout, config) if isinstance(config, Mapping) else None
        if run is None or not run.exists():
            return None
        checkpoint = recording_checkpoint(rollout, run, str(config.get("checkpoint") or BEST))
        return Recorder(f"the recording checkpoint {checkpoint}", observation_statistics(checkpoint, trust))
    except ConfigurationError as error:
        return Recorder("", None, str(error))


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
    """True if two mappings have equal trees of a name."""
    return name in one and name in other and are_equal(one[name], other[name])


def _names(wrappers: Iterable[str]) -> str:
    """Return the class names of wrappers, each once."""
    return " and ".join(dict.fromkeys(class_of(name).rpartition(".")[2] for name in wrappers))


def are_equal(one: Any, other: Any) -> bool:
    """True for trees of the same names with equal numbers and arrays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_equal(part, other[name]) for name, part in one.items())
    return np.array_equal(np.asarray(one), np.asarray(other))
