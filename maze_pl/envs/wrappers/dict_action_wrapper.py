"""Names for actions of environments that do not give them any."""

from typing import Any

from gymnasium import spaces

from maze_pl.core.spaces import dict_space
from maze_pl.envs.structured_env import Action, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper


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
