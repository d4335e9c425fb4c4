"""Actions for environments of a vector whose episodes have ended, and which are stepped along with the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array


class IdleActions:
    """Actions that idle environments allow: the first allowed options of masks, zeros and lowest options elsewhere.

    Args:
        space: Action space of one environment.

    Attributes:
        masks: Action head -> observation that masks it.
    """

    def __init__(self, space: spaces.Dict) -> None:
        self._spaces = space.spaces
        self._neutral = {head: _neutral(part) for head, part in space.spaces.items()}
        self.masks: Mapping[str, str] = {}

    def put_into(self, actions: Mapping[str, Array], is_idle: Array, observation: Mapping[str, Array]) -> None:
        """Replace the actions of idle environments.

        Args:
            actions: Head -> [N, ...] actions.
            is_idle: [N] bool, the idle environments.
            observation: Name -> [N, ...] latest observations of all environments.
        """
        for head, values in actions.items():
            values[is_idle] = self._neutral[head]
            space = self._spaces[head]
            mask = observation.get(self.masks.get(head, ""))
            if mask is not None and isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
                values[is_idle] = _first_allowed(space, mask[is_idle])


def _neutral(space: spaces.Space[Any]) -> Array:
    """Return an action that the space allows."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(space.start)
    return np.zeros(space.shape or (), np.int8)


def _first_allowed(space: spaces.Discrete | spaces.MultiDiscrete, mask: Array) -> Array:
    """Return the first allowed option of each choice [n, ...], the first one of all if none is allowed."""
    sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    choices = np.split(mask.reshape(len(mask), -1) != 0, np.cumsum(sizes)[:-1], axis=1)
    options = np.stack([choice.argmax(axis=1) for choice in choices], axis=1)
    first: Array = space.start + options.reshape(len(mask), *(space.shape or ()))
    return first
