"""Actions without names, for libraries that choose arrays."""

from __future__ import annotations

from typing import Any

from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Action, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper
from maze_pl.envs.wrappers.plain_gym_wrapper import PlainGymWrapper


class NoDictActionWrapper(PlainGymWrapper, ActionWrapper):  # type: ignore[misc]
    """Replaces the Dict action space by the only space in it.

    Args:
        env: A flat environment whose actions have one head.

    Raises:
        TypeError: Its action space is no Dict.
        ValueError: It is structured, has action masks, or several action heads.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictActionWrapper(GymMazeEnv("CartPole-v1"))
        >>> env.action_space
        Discrete(2)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, self._head, self._space = self._only_entry(env.action_spaces_dict, "action")
        self._action_spaces = {key: self._space}

    def action(self, action: Any) -> Action:
        """The action under its name, integers as Python's own, boxes within their bounds."""
        return {self._head: environment_action(self._space, action)}

    def reverse_action(self, action: Action) -> Any:
        """The only entry."""
        return action[self._head]
