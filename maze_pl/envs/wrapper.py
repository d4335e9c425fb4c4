"""Wrappers: environments around environments, which change what goes in and what comes out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any, ClassVar, Self, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.core_env import take_over
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepResult, StructuredEnv


def passed_on(name: str) -> property:
    """A member of wrappers that is the one of what they wrap, found without a call for each layer on the way."""
    doc = getattr(getattr(StructuredEnv, name, None), "__doc__", None)
    return property(attrgetter(f"env.{name}"), lambda self, value: setattr(self.env, name, value), doc=doc)


class Wrapper(gymnasium.Env[Observation, Action], StructuredEnv):  # type: ignore[misc]
    """Wraps an environment and passes everything on; subclasses override what they change.

    What a subclass overrides is what everything outside sees: one that splits a flat environment into sub-steps
    overrides `actor_id`, `agent_counts_dict`, the spaces, `step` and `reset`. New spaces can also be made in the
    constructor and set as `_observation_spaces` and `_action_spaces`. Attributes that are not part of the interface are
    looked up in the wrapped environment, and `isinstance` sees through wrappers (`EnvMeta`).

    A wrapper that learns from what it sees (running statistics) keeps two kinds of state: `state_dict` is all that
    this copy needs to go on, `shared_state` what copies around other environments can be given, too.

    Args:
        env: The environment to wrap.

    Raises:
        TypeError: This is no environment of ours, or its spaces are no Dicts.

    Attributes:
        accepts_plain_spaces: Whether what it wraps may have spaces that are no Dicts.
    """

    accepts_plain_spaces: ClassVar[bool] = False
    _observation_spaces: Mapping[StepKey, spaces.Dict] | None = None
    _action_spaces: Mapping[StepKey, spaces.Dict] | None = None

    def __init__(self, env: StructuredEnv) -> None:
        name = type(self).__name__
        if not isinstance(env, StructuredEnv):
            raise TypeError(f"{name} wraps a MazeEnv, not {env!r}; use GymMazeEnv for gymnasium's own")
        for key in () if self.accepts_plain_spaces else env.observation_spaces_dict:
            where = f"of sub-step {key!r} of {type(env).__name__}, which {name} is to wrap,"
            dict_space(env.observation_spaces_dict[key], f"the observation space {where}")
            dict_space(env.action_spaces_dict[key], f"the action space {where}")
        self.env = env

    @classmethod
    def wrap(cls, env: StructuredEnv, **kwargs: Any) -> Self:
        """Wrap an environment.

        Args:
            env: The environment to wrap.
            kwargs: Further arguments of the wrapper's constructor.
        """
        return cls(env, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Attribute of the wrapped environment; only called for what the wrapper itself does not have."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    # ---------------------------------------------------------------------------------------------- interaction

    def step(self, action: Action) -> StepResult:
        """Perform the act of the current actor; see `StructuredEnv.step`."""
        return self.env.step(action)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; see `StructuredEnv.reset`."""
        return self.env.reset(seed=seed, options=options)

    # -------------------------------------------------------------------------------------------------- spaces

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""
        return self._observation_spaces or self.env.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step."""
        inner = self.env.action_spaces_dict  # asked for in any case: this seeds parts that both have in common
        return self._action_spaces or inner

    # --------------------------------------------------------------------------------------- states and events

    action_masks_dict = cast(Any, passed_on("action_masks_dict"))
    get_maze_action = cast(Any, passed_on("get_maze_action"))
    get_observation_and_action_dicts = cast(Any, passed_on("get_observation_and_action_dicts"))

    def clone_from(self, env: Any) -> None:
        """Take over the state of another stack; see `StructuredEnv.clone_from`."""
        if type(env) is not type(self):
            raise TypeError(f"{type(self).__name__} cannot take over the state of a {type(env).__name__}")
        self.env.clone_from(env.env)
        take_over(self, env)

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Be told, by the `LogStatsWrapper` around the stack, that the episode has ended or is given up.

        Returns:
            What this wrapper adds to the episode's statistics: numbers, and arrays of values that were picked at
            random, `[n, ...]`; nothing by default.
        """
        return {}

    # ------------------------------------------------------------------------------------------ gymnasium's own

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """The environment inside all wrappers."""
        return cast(gymnasium.Env[Any, Any], self.env).unwrapped

    # ------------------------------------------------------------------------------------------- learned state

    def estimate(self, n_samples: int, seed: int) -> None:
        """Let this wrapper and those inside it estimate the statistics that they need before they can work.

        Args:
            n_samples: Number of observations to estimate from.
            seed: Determines the episodes and the actions.
        """
        for wrapper in reversed(list(wrappers_of(self))):
            wrapper.estimate_within(self, n_samples, seed)

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        """Estimate what this wrapper needs by stepping `env`, the whole stack; by default nothing is needed."""

    def state_dict(self) -> dict[str, Any]:
        """All that this copy has learned and remembers: arrays and primitives, nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`."""

    def shared_state(self) -> dict[str, Any]:
        """What other copies can be given, or what this copy contributes to it; empty if it learns nothing."""
        return {}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What several copies have learned together.

        Args:
            states: Result of `shared_state` of each copy, in the order of ranks and environments.
        """
        return dict(states[0])

    def load_shared_state(self, state: dict[str, Any]) -> None:
        """Take over the result of `merge_shared_states`, or the `shared_state` of a single copy."""

    def freeze(self) -> None:
        """Stop learning, as evaluation copies do; there is no way back."""


_PASSED_ON = """
    render close metadata render_mode spec np_random np_random_seed heuristic_policy core_env context pubsub
    actor_id is_actor_done agent_counts_dict get_actor_rewards get_env_time get_maze_state get_episode_id
    get_step_events get_kpi_calculator get_renderer get_serializable_components
"""
for _name in _PASSED_ON.split():
    setattr(Wrapper, _name, passed_on(_name))


class ObservationWrapper(Wrapper):
    """Changes observations."""

    @abstractmethod
    def observation(self, observation: Observation) -> Observation:
        """What the agent sees instead; a new dict, and the arrays that it got are left as they are."""

    def step(self, action: Action) -> StepResult:
        """Step, and change the observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation), reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Reset, and change the observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(observation), info

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action, and change the observations."""
        seen, done = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        return seen and {key: self.observation(observation) for key, observation in seen.items()}, done


class ActionWrapper(Wrapper):
    """Changes actions."""

    @abstractmethod
    def action(self, action: Action) -> Action:
        """What the wrapped environment gets instead."""

    def reverse_action(self, action: Action) -> Action:
        """The agent's action that becomes this one, needed to learn from recorded simulations.

        Raises:
            TypeError: This wrapper has no inverse.
        """
        raise TypeError(f"{type(self).__name__} cannot turn actions back; define its reverse_action")

    def step(self, action: Action) -> StepResult:
        """Change the action, and step."""
        return self.env.step(self.action(action))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the seed also determines what new spaces sample."""
        for space in () if seed is None else (self._action_spaces or {}).values():
            space.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action, and turn the actions back."""
        seen, done = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        return seen, done and {key: self.reverse_action(action) for key, action in done.items()}


class RewardWrapper(Wrapper):
    """Changes the reward that the agent learns from; what is logged stays the environment's own."""

    @abstractmethod
    def reward(self, reward: float) -> float:
        """What the agent gets instead; a pure function, since it is also applied to the rewards of single actors."""

    def step(self, action: Action) -> StepResult:
        """Step, and change the reward.

        Raises:
            EnvContractError: What it was changed to is not finite.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        changed = self.reward(reward)
        if changed in (inf, -inf) or changed != changed:  # what is no number at all is told by whoever steps
            kind = type(self).__name__
            raise EnvContractError(f"{kind} made {changed} of the reward {reward}; rewards are finite numbers")
        return observation, changed, terminated, truncated, info

    def get_actor_rewards(self) -> Array | None:
        """Changed rewards of the acts of the finished environment step, if they are attributed."""
        rewards = self.env.get_actor_rewards()
        return None if rewards is None else np.array([self.reward(float(reward)) for reward in rewards])


def wrappers_of(env: StructuredEnv) -> Iterator[Wrapper]:
    """The wrappers around an environment, from the outermost inwards."""
    while issubclass(type(env), Wrapper):  # isinstance would see through to those further in
        wrapper = cast(Wrapper, env)
        yield wrapper
        env = wrapper.env
