"""Conversion of the observations of PettingZoo environments."""

from typing import Any

import numpy as np

from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.structured_env import Observation

MASK = "action_mask"
"""Name of the observation that masks the actions, as in PettingZoo."""


class PettingZooObservationConversion(GymObservationConversion):
    """Names the observation of the agent whose turn it is: `observation`, or the parts of a Dict.

    In the last turn of an agent everything is allowed, as its action has no effect.

    Args:
        space: Observation space of the agents of a policy.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def maze_to_space(self, maze_state: dict[str, Any]) -> Observation:
        """Return the observation, or its parts, by name."""
        observation = super().maze_to_space(maze_state["observation"])
        if maze_state["has_ended"] and MASK in observation:
            observation[MASK] = np.ones_like(observation[MASK])
        return observation
