"""Conversions of an environment whose simulation has observations as its states and takes actions as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface, ObservationConversionInterface
from maze_pl.envs.structured_env import Action, Observation


class SameObservation(ObservationConversionInterface):
    """Passes on the observation that the simulation's state is.

    Args:
        space: Its space.
    """

    def __init__(self, space: spaces.Dict) -> None:
        self._space = space

    def space(self) -> spaces.Dict:
        """Return the space."""
        return self._space

    def maze_to_space(self, maze_state: Any) -> Observation:
        """Return a copy of the observation, in the dtypes of the space."""
        return {name: np.array(maze_state[name], part.dtype) for name, part in self._space.spaces.items()}

    def space_to_maze(self, observation: Observation) -> Any:
        """Return the observation."""
        return observation


class SameAction(ActionConversionInterface):
    """Passes on actions.

    Args:
        space: Their space.
        masks: Head -> name of its mask.
    """

    def __init__(self, space: spaces.Dict, masks: Mapping[str, str]) -> None:
        self._space = space
        self._masks = dict(masks)

    def space(self) -> spaces.Dict:
        """Return the space."""
        return self._space

    @property
    def action_masks(self) -> Mapping[str, str]:
        """Masks of the heads."""
        return self._masks

    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """Return the action."""
        return dict(action)

    def maze_to_space(self, maze_action: Any) -> Action:
        """Return the action."""
        action: Action = maze_action
        return action
