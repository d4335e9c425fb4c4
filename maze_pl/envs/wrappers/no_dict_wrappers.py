"""Plain gymnasium spaces in place of Dict spaces, for other libraries."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space, environment_action
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, ObservationWrapper, Wrapper


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
            only = f"{type(self).__name__} is for flat environments without action masks: other libraries know none"
            raise ValueError(f"{only}; {name_of(env)} has agents {counts} and masks {dict(masks)}; train it by maze_pl")

    def _entries(self, spaces_dict: Mapping[StepKey, spaces.Dict], what: str, *joined: type) -> tuple[StepKey, Any]:
        """The sub-step and the entries of its space: a single one, or several of joinable types."""
        ((key, space),) = spaces_dict.items()
        parts = dict_space(space, f"the {what} space that {type(self).__name__} is to take apart").spaces
        if len(parts) != 1 and not (parts and all(isinstance(part, joined) for part in parts.values())):
            only = f"{type(self).__name__} is for {what}s with a single entry, but there are {list(space)}"
            raise ValueError(f"{only}; leave out or join some of them by a wrapper further in")
        return key, parts

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """This environment itself, since inner ones have other spaces."""
        return self

    @property
    def _np_random(self) -> np.random.Generator:  # type: ignore[override]
        """Random generator, under the name that gymnasium's checker reads."""
        return self.np_random


class NoDictObservationWrapper(PlainGymWrapper, ObservationWrapper):
    """Replaces the Dict observation space by the only space in it.

    Args:
        env: A flat environment whose observations have one entry.

    Raises:
        TypeError: Its observation space is not a Dict.
        ValueError: It is structured, or has action masks or several observations.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> observation, _ = NoDictObservationWrapper(GymMazeEnv("CartPole-v1")).reset(seed=1)
        >>> observation.shape
        (4,)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        key, parts = self._entries(env.observation_spaces_dict, "observation")
        ((self._name, space),) = parts.items()
        self._observation_spaces = {key: space}

    def observation(self, observation: Observation) -> Any:
        """The only entry."""
        return observation[self._name]


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
        key, heads = self._entries(env.action_spaces_dict, "action", spaces.Discrete)
        self._heads, self._several, choices = list(heads), len(heads) > 1, heads.values()
        self._space = next(iter(choices))
        if self._several:
            sizes, starts = [int(choice.n) for choice in choices], [int(choice.start) for choice in choices]
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


class NoDictSpacesWrapper(PlainGymWrapper):
    """Replaces both Dict spaces by the only space in each, for other libraries and for gymnasium's checker.

    Args:
        env: A flat environment with one observation, and actions that `NoDictActionWrapper`
            accepts.

    Raises:
        TypeError: One of its spaces is not a Dict.
        ValueError: It is structured, or has action masks, several observations, or action heads
            that cannot be joined.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = NoDictSpacesWrapper(GymMazeEnv("CartPole-v1"))
        >>> observation, _ = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, _ = env.step(1)
        >>> observation.shape, reward
        ((4,), 1.0)
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(NoDictActionWrapper(NoDictObservationWrapper(env)))
