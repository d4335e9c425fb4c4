"""Actions without names, for libraries that choose arrays."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.spaces import dict_space, environment_action
from maze_pl.envs.structured_env import Action, ResetResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper
from maze_pl.envs.wrappers.plain_gym_wrapper import PlainGymWrapper


class NoDictActionWrapper(PlainGymWrapper, ActionWrapper):  # type: ignore[misc]
    """Replaces the Dict action space by the only space in it, or several `Discrete` ones by one `MultiDiscrete`.

    Args:
        env: A flat environment whose actions have one head, or discrete heads only, which keep their order.

    Raises:
        TypeError: Its action space is no Dict.
        ValueError: It is structured, has action masks, or several action heads that are not all `Discrete`.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictActionWrapper(GymMazeEnv("CartPole-v1"))
        >>> env.action_space
        Discrete(2)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        ((key, heads),) = env.action_spaces_dict.items()
        parts = dict_space(heads, f"the action space that {type(self).__name__} is to take apart").spaces
        choices = [space for space in parts.values() if isinstance(space, spaces.Discrete)]
        self._heads, self._several = list(parts), len(choices) == len(parts) > 1
        if self._several:
            sizes, starts = [int(space.n) for space in choices], [int(space.start) for space in choices]
            self._space: Any = spaces.MultiDiscrete(sizes, start=starts)
        else:
            *_, self._space = self._only_entry(env.action_spaces_dict, "action")
        self._action_spaces = {key: self._space}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the seed also determines what the joint space samples."""
        if seed is not None and self._several:
            self._space.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def action(self, action: Any) -> Action:
        """The action under its name, integers as Python's own, boxes within their bounds."""
        if self._several:
            return dict(zip(self._heads, np.asarray(action).tolist(), strict=True))
        return {self._heads[0]: environment_action(self._space, action)}

    def reverse_action(self, action: Action) -> Any:
        """The only entry, or all of them in order."""
        return np.array([action[head] for head in self._heads]) if self._several else action[self._heads[0]]
