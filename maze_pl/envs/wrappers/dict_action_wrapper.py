"""Dict action spaces for environments with other action spaces."""

from typing import Any

from gymnasium import spaces

from maze_pl.envs.structured_env import Action, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper
from maze_pl.envs.wrappers.dict_observation_wrapper import named_spaces


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
        parts = {}
        for key, space in env.action_spaces_dict.items():
            parts[key] = self.reverse_action(space.spaces if isinstance(space, spaces.Tuple) else space)
        self._action_spaces = named_spaces(self, parts)

    def action(self, action: Action) -> Any:
        """The entry `action`, or the tuple of `action_0`, `action_1` and so on."""
        if "action" in action:
            return action["action"]
        return tuple(action[f"action_{place}"] for place in range(len(action)))

    def reverse_action(self, action: Any) -> dict[str, Any]:
        """The action under its name, or its parts under theirs."""
        if isinstance(action, tuple) and action:
            return {f"action_{place}": part for place, part in enumerate(action)}
        return {"action": action}
