"""Staged actions of a vector, as environments expect them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import Staging


class StagedActions:
    """Reads the actions that were staged for the environments of a vector.

    Args:
        spec: Observation and action spaces of the agents.
        staging: The arrays.
    """

    def __init__(self, spec: Spec, staging: Staging) -> None:
        self._staging = staging
        self._readers: dict[StepKey, dict[str, Callable[[Array], Any]]] = {}
        for key, step in spec.steps.items():
            heads = step.action_space.spaces.items()
            self._readers[key] = {head: _reader(space) for head, space in heads}

    def of(self, key: StepKey) -> dict[str, Any]:
        """Return the actions of a sub-step: head -> [N, ...]."""
        staged = self._staging.action[key]
        return {head: read(staged[head]) for head, read in self._readers[key].items()}


def _reader(space: spaces.Space[Any]) -> Callable[[Array], Any]:
    """Return a function that reads the staged actions of a head.

    It converts integers to Python's `int` and clips the values of a bounded Box.
    """
    if isinstance(space, spaces.Discrete):
        return np.ndarray.tolist
    if isinstance(space, spaces.Box) and (space.bounded_below.any() or space.bounded_above.any()):
        return lambda staged: np.clip(staged, space.low, space.high)
    return np.ndarray.copy
