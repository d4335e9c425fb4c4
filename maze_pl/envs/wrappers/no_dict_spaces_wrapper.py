"""Plain spaces in place of both Dicts."""

from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrappers.no_dict_action_wrapper import NoDictActionWrapper
from maze_pl.envs.wrappers.no_dict_observation_wrapper import NoDictObservationWrapper
from maze_pl.envs.wrappers.plain_gym_wrapper import PlainGymWrapper


class NoDictSpacesWrapper(PlainGymWrapper):
    """Replaces both Dict spaces by the only space in each, for other libraries and checkers.

    Args:
        env: A flat environment with one observation, and actions that `NoDictActionWrapper`
            accepts.

    Raises:
        TypeError: One of its spaces is not a Dict.
        ValueError: It is structured, or has action masks, several observations, or action heads
            that cannot be joined.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictSpacesWrapper(GymMazeEnv("CartPole-v1"))
        >>> observation, _ = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, _ = env.step(1)
        >>> observation.shape, reward
        ((4,), 1.0)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(NoDictActionWrapper(NoDictObservationWrapper(env)))
