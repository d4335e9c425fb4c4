"""What the wrappers have in common that make a flat environment look like any other of gymnasium's."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class PlainGymWrapper(Wrapper):
    """A flat environment as other libraries know environments; meant to be outermost.

    Args:
        env: The environment to wrap.

    Raises:
        ValueError: The environment is structured or has action masks, of which other libraries know nothing.
    """

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        counts, masks = dict(env.agent_counts_dict), env.action_masks_dict
        if list(counts.values()) != [1] or any(masks.values()):
            has = f"{name_of(env)} has these numbers of agents by sub-step: {counts}, and these masks: {dict(masks)}"
            only = f"{type(self).__name__} is for flat environments without action masks"
            raise ValueError(f"{only}, because other libraries know nothing of these; {has}; train it with maze_pl")

    def _only_entry(self, spaces_dict: Mapping[StepKey, spaces.Dict], what: str) -> tuple[StepKey, str, Any]:
        """The sub-step, and the name and space of the only entry of its space."""
        ((key, space),) = spaces_dict.items()
        parts = list(dict_space(space, f"the {what} space that {type(self).__name__} is to take apart").items())
        if len(parts) != 1:
            only = f"{type(self).__name__} is for {what}s with a single entry, but there are {list(space)}"
            raise ValueError(f"{only}; leave out or join some of them by a wrapper further in")
        return key, *parts[0]

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """This environment itself: further in, its spaces are others."""
        return self

    @property
    def _np_random(self) -> np.random.Generator:  # type: ignore[override]
        """What gymnasium's checker looks at."""
        return self.np_random
