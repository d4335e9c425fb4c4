"""Names for observations of environments that do not give them any."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spaces import dict_space
from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper


class DictObservationWrapper(ObservationWrapper):
    """Puts observations that are single arrays into a Dict, under the name `observation`.

    For a `MazeEnv` whose observation conversions have a space that is no Dict; `GymMazeEnv` does this by itself.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: Its observations in some sub-step are not a Box, Discrete, MultiDiscrete or MultiBinary.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import NoDictObservationWrapper
        >>> env = DictObservationWrapper(NoDictObservationWrapper(GymMazeEnv("CartPole-v1")))
        >>> list(env.observation_space)
        ['observation']
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self._observation_spaces = {}
        for key, space in env.observation_spaces_dict.items():
            what = f"what DictObservationWrapper makes of sub-step {key!r}"
            self._observation_spaces[key] = dict_space(spaces.Dict({"observation": space}), what)

    def observation(self, observation: Any) -> Observation:
        """The observation under its name."""
        return {"observation": np.asarray(observation)}
