"""A plain observation space in place of a Dict."""

from typing import Any

from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers.plain_gym_wrapper import PlainGymWrapper


class NoDictObservationWrapper(PlainGymWrapper, ObservationWrapper):
    """Replaces the Dict observation space by the only space in it.

    Args:
        env: A flat environment whose observations have one entry.

    Raises:
        TypeError: Its observation space is not a Dict.
        ValueError: It is structured, or has action masks or several observations.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> observation, _ = NoDictObservationWrapper(GymMazeEnv("CartPole-v1")).reset(seed=1)
        >>> observation.shape
        (4,)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, parts = self.entries(env.observation_spaces_dict, "observation")
        ((self._name, space),) = parts.items()
        self._observation_spaces = {key: space}

    def observation(self, observation: Observation) -> Any:
        """The only entry."""
        return observation[self._name]
