"""Base class of wrappers that give an environment plain gymnasium spaces, for other libraries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class PlainGymWrapper(Wrapper):
    """Flat environment with the interface that other libraries expect; meant to be outermost.

    Args:
        env: The environment to wrap.

    Raises:
        ValueError: The environment is structured or has action masks, which other libraries do not
            support.
    """

    if TYPE_CHECKING:  # no Dicts, unlike those of other wrappers
        observation_space: Any
        action_space: Any

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        counts, masks = dict(env.agent_counts_dict), env.action_masks_dict
        if list(counts.values()) != [1] or any(masks.values()):
            only = f"{type(self).__name__} requires a flat environment without action masks"
            raise ValueError(f"{only}; {name_of(env)} has agents {counts} and masks {dict(masks)}; train with maze_pl")

    def entries(self, spaces_dict: Mapping[StepKey, spaces.Dict], what: str, *joined: type) -> tuple[StepKey, Any]:
        """The sub-step and the entries of its space: a single one, or several of joinable types."""
        ((key, space),) = spaces_dict.items()
        parts = dict_space(space, f"the {what} space that {type(self).__name__} is to take apart").spaces
        if len(parts) != 1 and not (parts and all(isinstance(part, joined) for part in parts.values())):
            only = f"{type(self).__name__} is for {what}s with a single entry, but there are {list(space)}"
            raise ValueError(f"{only}; leave out or join some of them with an inner wrapper")
        return key, parts

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """This environment itself, since inner ones have other spaces."""
        return self

    @property
    def _np_random(self) -> np.random.Generator:  # type: ignore[override]
        """Random generator, under the name that gymnasium's checker reads."""
        return self.np_random
