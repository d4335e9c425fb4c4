"""Interface of vector environments, which exchange data in preallocated arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.envs.building import load_shared_states, shared_states_of, states_of
from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrapper import Wrapper

Env = gymnasium.Env[Any, Any]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]
MakeEnv = Callable[[], Env]
Tree = dict[str, Array]


def allocate_tree(space: spaces.Dict, leading: tuple[int, ...], allocate: Allocate = np.zeros) -> Tree:
    """Allocate arrays for a batch of values of a space.

    Args:
        space: The space.
        leading: Leading dimensions, before the dimensions of a value.
        allocate: Makes an array of zeros.
    """
    parts = space.spaces.items()
    return {name: allocate((*leading, *(part.shape or ())), np.dtype(part.dtype)) for name, part in parts}


class Staging:
    """Arrays with one entry for each of N environments, overwritten by every step.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        allocate: Makes an array of zeros, for example in shared memory.

    Attributes:
        observation: Step key -> name -> [N, ...], valid for the environments whose next actor has this key.
        action: Step key -> head -> [N, ...], written by the caller before a step.
        next_key: [N] int64, step key of the actor that acts next, as its position among the step
            keys.
        next_agent: [N] int64, agent id of that actor.
        reward: [N] float64, reward of the last act.
        terminated: [N] bool.
        truncated: [N] bool.
        env_steps: [N] int64, environment steps that the last act completed.
        actor_done: [N] bool, True if the actor that just acted is done.
    """

    def __init__(self, spec: Spec, n_envs: int, allocate: Allocate = np.zeros) -> None:
        shape, steps = (n_envs,), spec.steps.items()
        self.observation = {key: allocate_tree(step.observation_space, shape, allocate) for key, step in steps}
        self.action = {key: allocate_tree(step.action_space, shape, allocate) for key, step in steps}
        self.next_key, self.next_agent, self.env_steps = (allocate(shape, np.dtype(np.int64)) for _ in range(3))
        self.terminated, self.truncated, self.actor_done = (allocate(shape, np.dtype(np.bool_)) for _ in range(3))
        self.reward = allocate(shape, np.dtype(np.float64))

    def slice(self, start: int, stop: int) -> Staging:
        """Return views of the environments from `start` up to but not including `stop`."""
        part = copy(self)
        vars(part).update(mapped(lambda array: array[start:stop], vars(self)))
        return part


@dataclass
class StepExtras:
    """Results of a step that only some environments have.

    Attributes:
        finals: (environment, step key, agent id, observation) of each truncated episode.
        actor_rewards: (environment, rewards of the acts of the finished environment step), if
            rewards are attributed to actors.
    """

    finals: list[tuple[int, StepKey, int, dict[str, Array]]]
    actor_rewards: list[tuple[int, Array]]


class VectorEnv(ABC):
    """N environments that step together and start their next episodes automatically.

    Every episode is seeded by the run's seed, the environment's index and the episode's index, so
    that results do not depend on how environments are spread over processes.

    Args:
        spec: Observation and action spaces of the agents.
        stacks: For each environment, its wrappers by name; see `wrapper_stack`.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        staging: Arrays of observations and actions, for example in shared memory; allocated if
            None.

    Attributes:
        n_envs: Number of environments.
        always_advances: True if every act is known to complete an environment step.
    """

    always_advances: bool = False

    def __init__(
        self,
        spec: Spec,
        stacks: list[dict[str, Wrapper]],
        seed: int,
        first_env_index: int,
        staging: Staging | None,
    ) -> None:
        self.spec = spec
        self.n_envs = len(stacks)
        self.seed = seed
        self.first_env_index = first_env_index
        self.staging = staging or Staging(spec, self.n_envs)
        self._stacks = stacks
        self._episode = [0] * self.n_envs
        self._acts: list[dict[StepKey, dict[str, list[Any]]]] = [{} for _ in stacks]  # actions of running episodes
        self._order: list[list[int]] = [[] for _ in stacks]  # their step keys, unless there is one
        self._summaries: list[EpisodeSummary] = []

    @abstractmethod
    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes.

        Args:
            envs: Numbers of the environments, all if None.
            episodes: Index of the episode that each of them starts, 0 if None.
        """

    @abstractmethod
    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions.

        Args:
            envs: Numbers of the environments, all if None.
        """

    def histories(self) -> list[dict[str, Any]]:
        """Return, for each environment, the acts of its running episode, from which to replay it.

        Returns:
            For each environment: `episode`, the index of the episode; `keys` [L], the step key of
            each act as its position among the step keys; and `actions`, step key -> head -> [number
            of acts of this key, ...]. If the state of a long episode was taken, `state` is restored
            after `n_before` acts, instead of replaying the acts that led to it; if that was not
            possible, `why` gives the reason.
        """
        histories = []
        for episode, order, acts in zip(self._episode, self._order, self._acts, strict=True):
            keys = order or [0] * max(len(values) for tree in acts.values() for values in tree.values())
            actions = mapped(lambda values, like: np.array(values, like.dtype), acts, self.staging.action)
            histories.append({"episode": episode, "keys": np.array(keys, np.int64), "actions": actions})
        return histories

    @abstractmethod
    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Bring each environment to the end of its history, then restore the state of its wrappers.

        Args:
            histories: Result of `histories`.
            wrapper_states: Result of `wrapper_states`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end the processes that they live in; safe to call twice."""

    def _finish(self, n: int, summary: EpisodeSummary) -> None:
        """Store the statistics of an episode that ended."""
        summary.env_index, summary.episode_index = self.first_env_index + n, self._episode[n]
        self._summaries.append(summary)

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Return summaries of episodes that ended since the last call.

        They are sorted by environment and episode.
        """
        summaries, self._summaries = self._summaries, []
        return sorted(summaries, key=lambda summary: (summary.env_index, summary.episode_index))

    def episodes(self) -> list[int]:
        """Return the index of each environment's current episode."""
        return list(self._episode)

    def shared_states(self) -> list[dict[str, Any]]:
        """Return, for each environment, its wrappers' statistics by name; see `wrapper_stack`."""
        return [shared_states_of(stack) for stack in self._stacks]

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Load statistics into the wrappers of every environment.

        Args:
            state: One entry of `shared_states`, or the result of `Wrapper.merge_shared_states`.
            freeze: Whether the wrappers stop updating their statistics, as in evaluation.
        """
        for stack in self._stacks:
            load_shared_states(stack, state, freeze)

    def wrapper_states(self) -> list[dict[str, Any]]:
        """Return, for each environment, its wrappers' full state by name; see `wrapper_stack`."""
        return [states_of(stack) for stack in self._stacks]
