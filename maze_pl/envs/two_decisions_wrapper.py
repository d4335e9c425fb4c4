"""Two decisions in each step of an environment that takes one."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepParts, StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class TwoDecisionsWrapper(Wrapper):
    """Splits each step of a flat environment into two sub-steps, 0 and 1.

    Sub-step 0 makes the first decision, with reward 0; the simulation waits. Sub-step 1 makes the
    second one and completes the step. Each of the two actors is credited with half of the reward.

    A subclass sets `_observation_spaces` and `_action_spaces` (sub-step -> space) in its constructor, and
    defines the four methods that convert observations and actions.

    Args:
        maze_env: The flat environment, with or without wrappers.

    Attributes:
        first_decision: Action of sub-step 0 in the running step; None before it was taken.
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        self.first_decision: Action | None = None
        self._flat_observation: Observation | None = None
        self._reward = 0.0

    @abstractmethod
    def first_observation(self, flat: Observation) -> Observation:
        """Return the observation of sub-step 0.

        Args:
            flat: Observation of the flat environment.
        """

    @abstractmethod
    def second_observation(self, flat: Observation, first: Action) -> Observation:
        """Return the observation of sub-step 1.

        Args:
            flat: Observation of the flat environment.
            first: Action of sub-step 0.
        """

    @abstractmethod
    def joined_action(self, first: Action, second: Action) -> Action:
        """Return the action of the flat environment that two decisions make."""

    @abstractmethod
    def split_action(self, flat: Action) -> tuple[Action, Action]:
        """Return the two decisions that make an action of the flat environment."""

    def step_in_parts(self, action: Action) -> StepParts:
        """Take the first decision (sub-step 0), or the second one (sub-step 1)."""
        if self._flat_observation is None:
            raise ResetNeeded(f"step of {type(self).__name__} was called before reset; start an episode first")
        if self.first_decision is None:
            self.begin_env_step()
            self.first_decision = {head: np.array(value) for head, value in action.items()}
            observation = self.second_observation(self._flat_observation, self.first_decision)
            return observation, 0.0, False, False, {}
        joined = self.joined_action(self.first_decision, action)
        self._flat_observation, self._reward, terminated, truncated, info = yield joined
        self.first_decision = None
        return self.first_observation(self._flat_observation), self._reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with the first decision."""
        self._flat_observation, info = self.env.reset(seed=seed, options=options)
        self.first_decision = None
        return self.first_observation(self._flat_observation), info

    def actor_id(self) -> ActorID:
        """Agent 0 of sub-step 0 or 1."""
        return ActorID(0 if self.first_decision is None else 1, 0)

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step: one in both."""
        return {0: 1, 1: 1}

    def get_actor_rewards(self) -> Array:
        """Rewards of the two actors: half of the finished step's reward each."""
        return np.full(2, self._reward / 2)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action; without the action, only sub-step 0 is converted."""
        flat = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        flat_observations, flat_actions = flat
        observations: dict[StepKey, Observation] | None = None
        actions: dict[StepKey, Action] | None = None
        if flat_observations is not None:
            observations = {0: self.first_observation(flat_observations[0])}
        if flat_actions is not None:
            first, second = self.split_action(flat_actions[0])
            actions = {0: first, 1: second}
            if observations is not None and flat_observations is not None:
                observations[1] = self.second_observation(flat_observations[0], first)
        return observations, actions
