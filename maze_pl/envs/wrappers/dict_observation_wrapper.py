"""Dict observation spaces for environments with other observation spaces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper


class DictObservationWrapper(ObservationWrapper):
    """Puts observations that are single arrays into a Dict, under the name `observation`.

    For a `MazeEnv` whose observation conversions have a space other than Dict; `GymMazeEnv` does
    this by itself.

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
        parts = {key: {"observation": space} for key, space in env.observation_spaces_dict.items()}
        self._observation_spaces = named_spaces(self, parts)

    def observation(self, observation: Any) -> Observation:
        """The observation under its name."""
        return {"observation": np.asarray(observation)}


def named_spaces(wrapper: Wrapper, parts: Mapping[StepKey, dict[str, Any]]) -> dict[StepKey, spaces.Dict]:
    """Make the Dict spaces of sub-steps from their parts."""
    what = f"the result of {type(wrapper).__name__} for sub-step"
    return {key: dict_space(spaces.Dict(named), f"{what} {key!r}") for key, named in parts.items()}
