"""Statistics by which recorded observations were normalised, and those of the agent that is to read them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.class_path import import_object
from maze_pl.envs.building import class_of
from maze_pl.envs.wrappers import ObservationNormalizationWrapper


def doubts_of_observations(agent: Any, behaviour: Any, behaviour_name: str) -> list[str]:
    """Return a warning if space records may not have the observations that the agent was trained with.

    Args:
        agent: Data module of the agent's run; None without one.
        behaviour: Data module of the run of the policy that recorded the episodes; None if it is unknown.
        behaviour_name: Its name.
    """
    trained = {} if agent is None else _normalization_of(agent)
    if not trained:
        return []
    names = " and ".join(class_of(name).rpartition(".")[2] for name in trained)
    fact = "space records keep the observations that were recorded, and the agent's are normalised"
    remedy = "record states (--trajectories states), which are converted"
    if behaviour is None:
        return [f"{fact}: unless the records were made with the statistics of its {names}, {remedy}"]
    if are_equal(trained, _normalization_of(behaviour)):
        return []
    return [f"{fact} by other statistics of {names} than those of {behaviour_name}: {remedy}"]


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
