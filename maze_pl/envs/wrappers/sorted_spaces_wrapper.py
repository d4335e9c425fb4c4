"""Dict spaces with their entries sorted by name."""

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper


class SortedSpacesWrapper(ObservationWrapper):
    """Sorts the entries of observations and of both spaces by name; sub-steps keep their order.

    Args:
        env: The environment to wrap.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = SortedSpacesWrapper(GymMazeEnv("CartPole-v1"))
        >>> list(env.observation_space)
        ['observation']
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self._observation_spaces = _sorted(env.observation_spaces_dict)
        self._action_spaces = _sorted(env.action_spaces_dict)

    def observation(self, observation: Observation) -> Observation:
        """The same entries, sorted."""
        return dict(sorted(observation.items()))


def _sorted(spaces_dict: Mapping[StepKey, spaces.Dict]) -> dict[StepKey, spaces.Dict]:
    return {key: spaces.Dict(sorted(space.items())) for key, space in spaces_dict.items()}
