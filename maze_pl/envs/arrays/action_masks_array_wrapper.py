"""Declaration of action masks that an array environment does not declare itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.gym_vector_array_env import GymVectorArrayEnv


class ActionMasksArrayWrapper(ArrayWrapper):
    """Declares observations as action masks; see `ActionMasksWrapper`.

    Args:
        env: The environment to wrap.
        action_masks_dict: For each sub-step, action head -> observation that masks it.
    """

    def __init__(self, env: ArrayEnv, action_masks_dict: Mapping[Any, Mapping[str, str]]) -> None:
        super().__init__(env)
        self._action_masks = action_masks_dict
        vector = env.unwrapped
        if isinstance(vector, GymVectorArrayEnv):
            vector.use_masks(action_masks_dict[0])

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Step key -> action head -> name of its mask, an observation."""
        return self._action_masks
