"""A plain action space in place of a Dict."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spaces import environment_action
from maze_pl.envs.structured_env import Action, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper
from maze_pl.envs.wrappers.plain_gym_wrapper import PlainGymWrapper


class NoDictActionWrapper(PlainGymWrapper, ActionWrapper):
    """Replaces the Dict action space by the only space in it, or several `Discrete` ones by one `MultiDiscrete`.

    Args:
        env: A flat environment whose actions have one head, or discrete heads only, which keep their order.

    Raises:
        TypeError: Its action space is not a Dict.
        ValueError: It is structured, or has action masks or several action heads that are not all
            `Discrete`.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictActionWrapper(GymMazeEnv("CartPole-v1"))
        >>> env.action_space
        Discrete(2)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, heads = self.entries(env.action_spaces_dict, "action", spaces.Discrete)
        choices = heads.values()
        self._heads, self._several = list(heads), len(heads) > 1
        self._space = next(iter(choices))
        if self._several:
            sizes = [int(choice.n) for choice in choices]
            starts = [int(choice.start) for choice in choices]
            self._space = spaces.MultiDiscrete(sizes, start=starts)
        self._action_spaces = {key: self._space}

    def action(self, action: Any) -> Action:
        """The action under its name, integers as Python integers, boxes clipped to their bounds."""
        if self._several:
            return dict(zip(self._heads, np.asarray(action).tolist(), strict=True))
        return {self._heads[0]: environment_action(self._space, action)}

    def reverse_action(self, action: Action) -> Any:
        """The only entry, or all of them in order."""
        return np.array([action[head] for head in self._heads]) if self._several else action[self._heads[0]]
