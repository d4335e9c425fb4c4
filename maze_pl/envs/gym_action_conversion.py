"""Conversion of the actions of gymnasium environments, which only names them."""

from typing import Any

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.named_parts import NamedParts
from maze_pl.envs.structured_env import Action


class GymActionConversion(NamedParts, ActionConversionInterface):
    """Names actions: `action`, or the parts of a Dict or Tuple space.

    The parts of a Dict are named by their keys, joined by slashes if nested; those of a Tuple
    `action_0`, `action_1` and so on.

    Values are passed on unchanged: a `Discrete` that starts at 3 has actions from 3 on. `Discrete`
    actions reach the environment as Python's `int`, which also works as a dictionary key.

    Args:
        space: The gymnasium environment's action space.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "action")
        self._choices = {name for name, part in self._space.items() if isinstance(part, spaces.Discrete)}

    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """Return the action in the gymnasium environment's format."""
        if not self._is_composed:
            return int(action["action"]) if self._choices else action["action"]
        return self.joined({name: int(one) if name in self._choices else one for name, one in action.items()})

    def maze_to_space(self, maze_action: Any) -> Action:
        """Return the gymnasium environment's action, or its parts, by name."""
        return self.divided(maze_action)
