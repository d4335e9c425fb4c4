"""Statistics by which recorded observations were normalised, and those of the agent that is to read them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, read
from maze_pl.core.class_path import import_object
from maze_pl.envs.building import class_of
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.runs.checkpoint import named_checkpoint
from maze_pl.runs.loading import load_data
from maze_pl.runs.rollout_wrappers import rollout_folder
from maze_pl.runs.run_checkpoints import BEST


class Recorder(NamedTuple):
    """The run whose policy recorded episodes.

    Attributes:
        name: Its name.
        data: Its data module.
    """

    name: str
    data: Any


def recorder_of(entries: Sequence[Any], trust: bool) -> Recorder | None:
    """Return the run that recorded episodes, from the configuration of their rollout; None if it is unknown.

    Args:
        entries: Files, folders and records; the first one whose rollout is known counts.
        trust: Whether the run may name any class.
    """
    for entry in entries:
        folder = rollout_folder(Path(entry)) if isinstance(entry, str | Path) else None
        if folder is None:
            continue
        with suppress(ConfigurationError):
            config: Any = read(folder / RUN_CONFIG)
            run = config.get("run") if isinstance(config, Mapping) else None
            if isinstance(run, str) and Path(run).exists():
                checkpoint = named_checkpoint(run, config.get("checkpoint") or BEST)
                return Recorder(f"the recording run {run}", load_data(checkpoint, trust=trust))
    return None


def doubts_of_observations(agent: Any, recorder: Recorder | None) -> list[str]:
    """Return a warning if space records may not have the observations that the agent was trained with.

    Args:
        agent: Data module of the agent's run; None without one.
        recorder: The run that recorded the episodes; None if it is unknown.
    """
    if agent is None:
        return []
    trained = _normalization_of(agent)
    recorded = trained if recorder is None else _normalization_of(recorder.data)
    names = " and ".join(class_of(name).rpartition(".")[2] for name in {**trained, **recorded})
    fact = "space records keep the observations that were recorded"
    remedy = "record states (--trajectories states), which are converted"
    if recorder is None and trained:
        return [f"{fact}: unless they were normalised by the statistics of the agent's {names}, {remedy}"]
    if recorder is None or are_equal(trained, recorded):
        return []
    return [f"{fact}, and the statistics of {names} are not the same in {recorder.name} and the agent's run: {remedy}"]


def _normalization_of(data: Any) -> dict[str, Any]:
    """Return the statistics of wrappers that normalise observations, by name."""
    found = {}
    for name, state in data.wrapper_statistics().items():
        kind: Any = import_object(class_of(name))
        if issubclass(kind, ObservationNormalizationWrapper):
            found[name] = state
    return found


def are_equal(one: Any, other: Any) -> bool:
    """True for trees of the same names with equal numbers and arrays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_equal(part, other[name]) for name, part in one.items())
    return np.array_equal(np.asarray(one), np.asarray(other))
