"""A simulation as a gymnasium environment: conversions between its objects and arrays, time, and its reward event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spaces import dict_space
from maze_pl.envs.contract import check_step, name_of
from maze_pl.envs.conversions import ActionConversionInterface, ObservationConversionInterface
from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.structured_env import Action, Array, EnvMeta, Observation, StructuredEnv
from maze_pl.events.kpi import KpiCalculator
from maze_pl.events.pubsub import EventRecord
from maze_pl.events.topics import BaseEnvEvents


class MazeEnv(gymnasium.Env[Observation, Action], StructuredEnv, metaclass=EnvMeta):
    """Wraps a simulation, with one pair of conversions for each sub-step.

    It fires `BaseEnvEvents.reward` with the simulation's own reward, and keeps the time of flat simulations. Events
    are those of an environment step, not of a sub-step; those fired by `reset` belong to the first step.

    Args:
        core_env: The simulation.
        action_conversion_dict: Step key -> conversion of actions.
        observation_conversion_dict: Step key -> conversion of states.

    Raises:
        TypeError: A conversion's space is not a Dict of Box, Discrete, MultiDiscrete and MultiBinary.
        ValueError: The conversions and `core_env.agent_counts_dict` are not for the same sub-steps, or a mask names
            an unknown head or observation.
    """

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion_dict: Mapping[StepKey, ActionConversionInterface],
        observation_conversion_dict: Mapping[StepKey, ObservationConversionInterface],
    ) -> None:
        keys = list(core_env.agent_counts_dict)
        if not set(keys) == set(action_conversion_dict) == set(observation_conversion_dict):
            raise ValueError(
                f"the simulation has sub-steps {keys}, action conversions are for {list(action_conversion_dict)} and "
                f"observation conversions for {list(observation_conversion_dict)}; give one of each for every sub-step"
            )
        self.core_env = core_env
        self.context = core_env.context
        self.pubsub = core_env.pubsub
        self.action_conversion_dict = dict(action_conversion_dict)
        self.observation_conversion_dict = dict(observation_conversion_dict)
        self._observation_spaces = {
            key: dict_space(observation_conversion_dict[key].space(), f"the observation space of sub-step {key!r}")
            for key in keys
        }
        self._action_spaces = {
            key: dict_space(action_conversion_dict[key].space(), f"the action space of sub-step {key!r}")
            for key in keys
        }
        self._action_masks = {key: self._checked_masks(key) for key in keys}
        self._base_events = self.pubsub.create_event_topic(BaseEnvEvents)
        self._is_flat = len(keys) == 1 and core_env.agent_counts_dict[keys[0]] == 1
        self._step_key: StepKey | None = None  # of the actor that acts next
        self._space_seed: int | None = None  # which the action spaces are yet to be seeded with
        self._generator: np.random.Generator | None = None
        self._maze_state: Any = None
        self._maze_action: Any = None

    def _checked_masks(self, key: StepKey) -> dict[str, str]:
        masks = dict(self.action_conversion_dict[key].action_masks)
        for head, name in masks.items():
            if head not in self._action_spaces[key].spaces:
                raise ValueError(f"sub-step {key!r} has a mask for the unknown action head {head!r}")
            if name not in self._observation_spaces[key].spaces:
                raise ValueError(f"sub-step {key!r} has the mask {name!r}, which is not among its observations")
        return masks

    # ---------------------------------------------------------------------------------------------- interaction

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Perform the act of the current actor; see `StructuredEnv.step`.

        Raises:
            ResetNeeded: No episode was started.
            EnvContractError: The simulation returned something else than a state, a reward, two flags and a dict.
        """
        core_env, context, key = self.core_env, self.context, self._step_key
        if key is None:
            raise ResetNeeded(f"step of {name_of(self)} was called before reset; start an episode first")
        if context.env_step_incremented:  # the last act completed an environment step: another one begins
            self.pubsub.clear()
            context.env_step_incremented = False
        maze_action = self._maze_action = self.action_conversion_dict[key].space_to_maze(action, self._maze_state)
        result: Any = core_env.step(maze_action)
        try:
            maze_state, reward, terminated, truncated, info = result
            reward = float(reward)
        except (TypeError, ValueError):
            check_step(result, self)
            raise
        self._base_events.reward(value=reward)
        if not self._is_flat:
            self._step_key = key = core_env.actor_id().step_key
        elif not context.env_step_incremented:
            context.increment_env_step()
        self._maze_state = maze_state
        return self.observation_conversion_dict[key].maze_to_space(maze_state), reward, terminated, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see `StructuredEnv.reset`.

        Raises:
            ValueError: Options were given; override this method in environments that have some.
        """
        if options:
            raise ValueError(f"{type(self).__name__} takes no options at reset, but {sorted(options)} were given")
        if seed is not None:
            self._generator, self._np_random_seed = None, seed
        self.context.reset_episode(seed)
        self.pubsub.clear()
        if seed is not None:
            self.core_env.seed(seed)
            self._space_seed = seed
        self._maze_action = None
        self._maze_state = self.core_env.reset()
        self._step_key = key = self.core_env.actor_id().step_key
        return self.observation_conversion_dict[key].maze_to_space(self._maze_state), {}

    @property
    def _np_random(self) -> np.random.Generator | None:
        """Gymnasium's generator of this object, which few ever use: made when somebody asks for it."""
        if self._generator is None and self._np_random_seed is not None:
            self._generator, _ = seeding.np_random(self._np_random_seed)
        return self._generator

    @_np_random.setter
    def _np_random(self, value: np.random.Generator | None) -> None:
        self._generator = value

    def close(self) -> None:
        """Close the simulation."""
        self.core_env.close()

    # -------------------------------------------------------------------------------------------------- actors

    def actor_id(self) -> ActorID:
        """The actor that acts next."""
        return self.core_env.actor_id()

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted is done."""
        return self.core_env.is_actor_done()

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes."""
        return self.core_env.agent_counts_dict

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the finished environment step, if they are attributed."""
        return self.core_env.get_actor_rewards()

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self.core_env.get_env_time()

    # -------------------------------------------------------------------------------------------------- spaces

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""
        return self._observation_spaces

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step; what they sample is determined by the seed of the last seeded `reset`."""
        if (
            self._space_seed is not None
        ):  # seeding takes as long as two steps of a simple environment, and few ever sample
            for space in self._action_spaces.values():
                space.seed(self._space_seed)
            self._space_seed = None
        return self._action_spaces

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return self._action_masks

    @property
    def observation_space(self) -> spaces.Dict:  # type: ignore[override]
        """What the actor that acts next sees."""
        return self._observation_spaces[self.core_env.actor_id().step_key]

    @property
    def action_space(self) -> spaces.Dict:  # type: ignore[override]
        """What the actor that acts next may do."""
        return self.action_spaces_dict[self.core_env.actor_id().step_key]

    @property
    def observation_conversion(self) -> ObservationConversionInterface:
        """Conversion of states for the actor that acts next."""
        return self.observation_conversion_dict[self.core_env.actor_id().step_key]

    @property
    def action_conversion(self) -> ActionConversionInterface:
        """Conversion of actions for the actor that acts next."""
        return self.action_conversion_dict[self.core_env.actor_id().step_key]

    # --------------------------------------------------------------------------------------- states and events

    def get_maze_state(self) -> Any:
        """The simulation's state."""
        return self.core_env.get_maze_state()

    def get_maze_action(self) -> Any:
        """The simulation's form of the last action, None before the first one."""
        return self._maze_action

    def get_episode_id(self) -> str:
        """Identifier (UUID) of the current episode."""
        return self.context.episode_id

    def get_step_events(self) -> list[EventRecord]:
        """Events of the current environment step so far."""
        return self.pubsub.get_step_events()

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """What computes the performance indicators of an episode."""
        return self.core_env.get_kpi_calculator()

    def get_renderer(self) -> Any:
        """What draws states of the simulation."""
        return self.core_env.get_renderer()

    def get_serializable_components(self) -> dict[str, Any]:
        """Components whose state is recorded together with the simulation's state."""
        return self.core_env.get_serializable_components()

    def get_observation_and_action_dicts(
        self, maze_state: Any, maze_action: Any, first_step_in_episode: bool
    ) -> tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]:
        """Convert a recorded state and action; see `StructuredEnv.get_observation_and_action_dicts`.

        Raises:
            ValueError: There are several sub-steps, so that the state does not say which of them it belongs to.
        """
        if len(self._observation_spaces) != 1:
            raise ValueError(
                f"a state alone does not tell which of the sub-steps {list(self._observation_spaces)} it belongs to; "
                "override get_observation_and_action_dicts in the environment or in a wrapper"
            )
        (key,) = self._observation_spaces
        observation = None if maze_state is None else self.observation_conversion_dict[key].maze_to_space(maze_state)
        action = None if maze_action is None else self.action_conversion_dict[key].maze_to_space(maze_action)
        return None if observation is None else {key: observation}, None if action is None else {key: action}
