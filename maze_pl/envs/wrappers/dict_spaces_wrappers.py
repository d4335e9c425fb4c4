"""Dict spaces for environments with other spaces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, Wrapper


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
        self._observation_spaces = _named(self, {k: {"observation": s} for k, s in env.observation_spaces_dict.items()})

    def observation(self, observation: Any) -> Observation:
        """The observation under its name."""
        return {"observation": np.asarray(observation)}


class DictActionWrapper(ActionWrapper):
    """Puts single actions into a Dict under the name `action`, and tuples of them as `action_0`, `action_1` and so on.

    For a `MazeEnv` whose action conversions have a space other than Dict; `GymMazeEnv` does this by
    itself.

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
        wholes = {k: s.spaces if isinstance(s, spaces.Tuple) else s for k, s in env.action_spaces_dict.items()}
        self._action_spaces = _named(self, {key: self.reverse_action(whole) for key, whole in wholes.items()})

    def action(self, action: Action) -> Any:
        """The entry `action`, or the tuple of `action_0`, `action_1` and so on."""
        return action["action"] if "action" in action else tuple(action[f"action_{i}"] for i in range(len(action)))

    def reverse_action(self, action: Any) -> dict[str, Any]:
        """The action under its name, or its parts under theirs."""
        parts = action if isinstance(action, tuple) else ()
        return {f"action_{i}": part for i, part in enumerate(parts)} or {"action": action}


def _named(wrapper: Wrapper, parts: Mapping[StepKey, dict[str, Any]]) -> dict[StepKey, spaces.Dict]:
    """Make the Dict spaces of sub-steps from their parts."""
    what = f"what {type(wrapper).__name__} makes of sub-step"
    return {key: dict_space(spaces.Dict(named), f"{what} {key!r}") for key, named in parts.items()}
