"""Wrappers: environments around environments, which change what goes in and what comes out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.structured_env import Action, Array, EnvMeta, Observation, StructuredEnv
from maze_pl.events.context import EnvironmentContext
from maze_pl.events.kpi import KpiCalculator
from maze_pl.events.pubsub import EventRecord, Pubsub


class Wrapper(gymnasium.Env[Observation, Action], StructuredEnv, metaclass=EnvMeta):
    """Wraps an environment and passes everything on; subclasses override what they change.

    What a subclass overrides is what everything outside sees: one that splits a flat environment into sub-steps
    overrides `actor_id`, `agent_counts_dict`, the spaces, `step` and `reset`. Attributes that are not part of the
    interface are looked up in the wrapped environment, and `isinstance` sees through wrappers (`EnvMeta`).

    A wrapper that learns from what it sees (running statistics) keeps two kinds of state: `state_dict` is all that
    this copy needs to go on, `shared_state` what copies around other environments can be given, too.

    Args:
        env: The environment to wrap.
    """

    def __init__(self, env: StructuredEnv) -> None:
        if not isinstance(env, StructuredEnv):
            raise TypeError(f"{type(self).__name__} wraps a MazeEnv, not {env!r}; use GymMazeEnv for gymnasium's own")
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

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Perform the act of the current actor; see `StructuredEnv.step`."""
        return self.env.step(action)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see `StructuredEnv.reset`."""
        return self.env.reset(seed=seed, options=options)

    def render(self) -> Any:
        """What the environment draws."""
        return cast(gymnasium.Env[Any, Any], self.env).render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    # -------------------------------------------------------------------------------------------------- actors

    def actor_id(self) -> ActorID:
        """The actor that acts next."""
        return self.env.actor_id()

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted is done."""
        return self.env.is_actor_done()

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes."""
        return self.env.agent_counts_dict

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the finished environment step, if they are attributed."""
        return self.env.get_actor_rewards()

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self.env.get_env_time()

    # -------------------------------------------------------------------------------------------------- spaces

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""
        return self.env.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step."""
        return self.env.action_spaces_dict

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return self.env.action_masks_dict

    @property
    def observation_space(self) -> spaces.Dict:  # type: ignore[override]
        """What the actor that acts next sees."""
        return self.observation_spaces_dict[self.actor_id().step_key]

    @property
    def action_space(self) -> spaces.Dict:  # type: ignore[override]
        """What the actor that acts next may do."""
        return self.action_spaces_dict[self.actor_id().step_key]

    # --------------------------------------------------------------------------------------- states and events

    @property
    def core_env(self) -> CoreEnv:  # type: ignore[override]
        """The simulation."""
        return self.env.core_env

    @property
    def context(self) -> EnvironmentContext:  # type: ignore[override]
        """The episode's identifier and the environment time."""
        return self.env.context

    @property
    def pubsub(self) -> Pubsub:  # type: ignore[override]
        """Broker of the environment's events."""
        return self.env.pubsub

    def get_maze_state(self) -> Any:
        """The simulation's state."""
        return self.env.get_maze_state()

    def get_maze_action(self) -> Any:
        """The simulation's form of the last action, None before the first one."""
        return self.env.get_maze_action()

    def get_episode_id(self) -> str:
        """Identifier (UUID) of the current episode."""
        return self.env.get_episode_id()

    def get_step_events(self) -> list[EventRecord]:
        """Events of the current environment step so far."""
        return self.env.get_step_events()

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """What computes the performance indicators of an episode."""
        return self.env.get_kpi_calculator()

    def get_renderer(self) -> Any:
        """What draws states of the simulation."""
        return self.env.get_renderer()

    def get_serializable_components(self) -> dict[str, Any]:
        """Components whose state is recorded together with the simulation's state."""
        return self.env.get_serializable_components()

    def get_observation_and_action_dicts(
        self, maze_state: Any, maze_action: Any, first_step_in_episode: bool
    ) -> tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]:
        """Convert a recorded state and action; see `StructuredEnv.get_observation_and_action_dicts`."""
        return self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)

    # ------------------------------------------------------------------------------------------ gymnasium's own

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """The environment inside all wrappers."""
        return cast(gymnasium.Env[Any, Any], self.env).unwrapped

    @property
    def metadata(self) -> dict[str, Any]:  # type: ignore[override]
        """Render modes and the like."""
        return cast(gymnasium.Env[Any, Any], self.env).metadata

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """The render mode that the environment was made with."""
        return cast(gymnasium.Env[Any, Any], self.env).render_mode

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """How gymnasium made the environment, if it did."""
        return cast(gymnasium.Env[Any, Any], self.env).spec

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's random generator."""
        return cast(gymnasium.Env[Any, Any], self.env).np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        cast(gymnasium.Env[Any, Any], self.env).np_random = value

    @property
    def np_random_seed(self) -> int:
        """Seed of the environment's random generator."""
        return cast(gymnasium.Env[Any, Any], self.env).np_random_seed

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


class ObservationWrapper(Wrapper):
    """Changes observations."""

    @abstractmethod
    def observation(self, observation: Observation) -> Observation:
        """What the agent sees instead; a new dict, and the arrays that it got are left as they are."""

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Step, and change the observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation), reward, terminated, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Reset, and change the observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(observation), info

    def get_observation_and_action_dicts(
        self, maze_state: Any, maze_action: Any, first_step_in_episode: bool
    ) -> tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]:
        """Convert a recorded state and action, and change the observations."""
        observations, actions = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        if observations is not None:
            observations = {key: self.observation(observation) for key, observation in observations.items()}
        return observations, actions


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

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Change the action, and step."""
        return self.env.step(self.action(action))

    def get_observation_and_action_dicts(
        self, maze_state: Any, maze_action: Any, first_step_in_episode: bool
    ) -> tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]:
        """Convert a recorded state and action, and turn the actions back."""
        observations, actions = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        if actions is not None:
            actions = {key: self.reverse_action(action) for key, action in actions.items()}
        return observations, actions


class RewardWrapper(Wrapper):
    """Changes the reward that the agent learns from; what is logged stays the environment's own."""

    @abstractmethod
    def reward(self, reward: float) -> float:
        """What the agent gets instead; a pure function, since it is also applied to the rewards of single actors."""

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Step, and change the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self.reward(reward), terminated, truncated, info

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
