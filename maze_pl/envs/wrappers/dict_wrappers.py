"""Names for observations and actions of environments that do not give them any, and an order of names."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spaces import dict_space
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper


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


class DictActionWrapper(ActionWrapper):
    """Puts single actions into a Dict under the name `action`, and tuples of them as `action_0`, `action_1` and so on.

    For a `MazeEnv` whose action conversions have a space that is no Dict; `GymMazeEnv` does this by itself.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: Its action space in some sub-step is a Dict already.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import NoDictActionWrapper
        >>> env = DictActionWrapper(NoDictActionWrapper(GymMazeEnv("CartPole-v1")))
        >>> env.action_space
        Dict('action': Discrete(2))
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self._action_spaces = {}
        for key, space in env.action_spaces_dict.items():
            parts = self.reverse_action(space.spaces if isinstance(space, spaces.Tuple) else space)
            what = f"what DictActionWrapper makes of sub-step {key!r}"
            self._action_spaces[key] = dict_space(spaces.Dict(parts), what)

    def action(self, action: Action) -> Any:
        """What stands under the name, or the tuple of what stands under the names."""
        return action["action"] if "action" in action else tuple(action[f"action_{i}"] for i in range(len(action)))

    def reverse_action(self, action: Any) -> dict[str, Any]:
        """The action under its name, or its parts under theirs."""
        parts = action if isinstance(action, tuple) else ()
        return {f"action_{i}": part for i, part in enumerate(parts)} or {"action": action}


class SortedSpacesWrapper(ObservationWrapper):
    """Sorts the entries of observations and of both spaces by name; sub-steps stay in their order.

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
        shown, taken = env.observation_spaces_dict.items(), env.action_spaces_dict.items()
        self._observation_spaces = {key: spaces.Dict(sorted(space.items())) for key, space in shown}
        self._action_spaces = {key: spaces.Dict(sorted(space.items())) for key, space in taken}

    def observation(self, observation: Observation) -> Observation:
        """The same entries, sorted."""
        return dict(sorted(observation.items()))
