"""What everything outside an environment may ask of it, whether it is a `MazeEnv` or a stack of wrappers."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.events import EnvironmentContext, EventRecord, KpiCalculator, Pubsub

if TYPE_CHECKING:
    from maze_pl.envs.core_env import CoreEnv

Array = np.ndarray[Any, np.dtype[Any]]
Observation = dict[str, Array]
Action = Mapping[str, Any]
"""Head -> an int for `Discrete`, an array for the other spaces."""
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated and further information."""
ResetResult = tuple[Observation, dict[str, Any]]
"""Observation and further information."""
Dicts = tuple[dict[StepKey, Observation] | None, dict[StepKey, Action] | None]
"""Observation and action of each sub-step."""


class EnvMeta(ABCMeta):
    """Lets `isinstance` see what a wrapper wraps.

    `isinstance(env, C)` holds if the environment or anything further in, along the `env` attributes of our own
    wrappers, is an instance of C. To ask for the outermost class only, look at `type(env)`.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether the instance, or an environment that it wraps, is of this class."""
        while not super().__instancecheck__(instance):
            if not issubclass(type(type(instance)), EnvMeta):
                return False
            instance = vars(instance).get("env")
        return True


class StructuredEnv(metaclass=EnvMeta):
    """An environment in which one actor at a time acts; who that is, the environment decides.

    An environment step consists of one or several acts, and an act is one call of `step`. A flat environment, with
    one actor that acts once in each environment step, is the special case. What is not said otherwise here, the
    simulation knows.

    Attributes:
        heuristic_policy: Class path of a policy that plays it decently without having learned, for
            `maze-pl rollout --policy heuristic`; None if there is none. Environments set it in their class.
    """

    heuristic_policy: str | None = None
    core_env: CoreEnv
    context: EnvironmentContext
    pubsub: Pubsub

    @abstractmethod
    def step(self, action: Action) -> StepResult:
        """Perform the act of the current actor.

        Returns:
            Observation of the next actor, reward, terminated, truncated and further information.
        """

    @abstractmethod
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode.

        Args:
            seed: Determines everything random in the episode; None goes on with the generators as they are.
            options: Passed on to environments that take options.
        """

    def close(self) -> None:
        """Release what the environment holds; safe to call twice."""
        self.core_env.close()

    def actor_id(self) -> ActorID:
        """The actor that acts next; ids of finished actors are not used again in an episode."""
        return self.core_env.actor_id()

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted is done, which says nothing about the episode."""
        return self.core_env.is_actor_done()

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes during an episode."""
        return self.core_env.agent_counts_dict

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the finished environment step in order, None if rewards are the team's."""
        return self.core_env.get_actor_rewards()

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self.core_env.get_env_time()

    @property
    @abstractmethod
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""

    @property
    @abstractmethod
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step."""

    @property
    def observation_space(self) -> spaces.Dict:
        """What the actor that acts next sees."""
        return self.observation_spaces_dict[self.actor_id().step_key]

    @property
    def action_space(self) -> spaces.Dict:
        """What the actor that acts next may do."""
        return self.action_spaces_dict[self.actor_id().step_key]

    @property
    @abstractmethod
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> name of the observation whose nonzero entries are allowed."""

    def get_maze_state(self) -> Any:
        """The simulation's state."""
        return self.core_env.get_maze_state()

    @abstractmethod
    def get_maze_action(self) -> Any:
        """The simulation's form of the last action, None before the first one."""

    def get_episode_id(self) -> str:
        """Identifier (UUID) of the current episode."""
        return self.context.episode_id

    def get_step_events(self) -> list[EventRecord]:
        """Events of the current environment step so far."""
        return self.pubsub.get_step_events()

    def get_kpi_calculator(self) -> KpiCalculator | None:
        """What computes the performance indicators of an episode, if anything."""
        return self.core_env.get_kpi_calculator()

    def get_renderer(self) -> Any:
        """What draws states of this environment, None if nothing does."""
        return self.core_env.get_renderer()

    def get_serializable_components(self) -> dict[str, Any]:
        """Components whose state is recorded together with the simulation's state."""
        return self.core_env.get_serializable_components()

    @abstractmethod
    def clone_from(self, env: Any) -> None:
        """Take over the state of another environment that was made in the same way, so that both go on equally.

        Raises:
            TypeError: The simulation, or a wrapper, cannot, or the other environment is made of other classes.
        """

    @abstractmethod
    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and a recorded action to what agents saw and did in each sub-step.

        Args:
            maze_state: The recorded state, or None.
            maze_action: The action that was taken in it, or None.
            first_step_in_episode: Whether the state is an episode's first, for wrappers that keep a history.

        Returns:
            Observation and action of each sub-step; None for what was not given.
        """
