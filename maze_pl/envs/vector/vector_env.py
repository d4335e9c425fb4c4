"""Several environments stepped together: what is exchanged with them lies in preallocated arrays."""

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
from maze_pl.envs.vector.wrapped import load_shared_states, shared_states_of
from maze_pl.envs.wrapper import Wrapper

Array = np.ndarray[Any, np.dtype[Any]]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]
EnvFactory = Callable[[], gymnasium.Env[Any, Any]]
Reader = Callable[[Array], Any]
Tree = dict[str, Array]


def allocate_tree(space: spaces.Dict, leading: tuple[int, ...], allocate: Allocate = np.zeros) -> Tree:
    """Arrays for many values of a space.

    Args:
        space: The space.
        leading: Dimensions before those of a value.
        allocate: Makes an array of zeros.
    """
    parts = space.spaces.items()
    return {name: allocate((*leading, *(part.shape or ())), np.dtype(part.dtype)) for name, part in parts}


def readers_of(space: spaces.Dict, discrete: Callable[[Array], Any] = np.ndarray.copy) -> dict[str, Reader]:
    """For each head, what takes staged actions over: it copies them, those of a Box within its bounds.

    Args:
        space: The action space.
        discrete: What takes over those of a Discrete head.
    """

    def reader(part: spaces.Space[Any]) -> Reader:
        if isinstance(part, spaces.Box) and (part.bounded_below.any() or part.bounded_above.any()):
            return lambda staged: np.clip(staged, part.low, part.high)
        return discrete if isinstance(part, spaces.Discrete) else np.ndarray.copy

    return {head: reader(part) for head, part in space.spaces.items()}


class Staging:
    """One entry for each of N environments, overwritten by every step.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.
        allocate: Makes an array of zeros, for example in shared memory.

    Attributes:
        observation: Step key -> name -> [N, ...], valid for the environments whose next actor has this key.
        action: Step key -> head -> [N, ...], written by the caller before a step.
        next_key: [N] position among the step keys of the actor that acts next.
        next_agent: [N] its agent id.
        reward: [N] float64, what the last act returned.
        terminated: [N] bool.
        truncated: [N] bool.
        env_steps: [N] int64, environment time that the last act advanced.
        actor_done: [N] bool, the actor that just acted is done.
    """

    def __init__(self, spec: Spec, n_envs: int, allocate: Allocate = np.zeros) -> None:
        shape, steps = (n_envs,), spec.steps.items()
        integer, number, flag = (np.dtype(kind) for kind in (np.int64, np.float64, np.bool_))
        self.observation = {key: allocate_tree(step.observation_space, shape, allocate) for key, step in steps}
        self.action = {key: allocate_tree(step.action_space, shape, allocate) for key, step in steps}
        self.next_key, self.next_agent, self.env_steps = (allocate(shape, integer) for _ in range(3))
        self.terminated, self.truncated, self.actor_done = (allocate(shape, flag) for _ in range(3))
        self.reward = allocate(shape, number)

    def slice(self, start: int, stop: int) -> Staging:
        """Views of the environments `start` to `stop`."""
        part = copy(self)
        vars(part).update(mapped(lambda array: array[start:stop], vars(self)))
        return part


@dataclass
class History:
    """The acts of the episode that an environment is in, from which the episode can be played again.

    Attributes:
        episode: Index of the episode.
        keys: [L] position among the step keys of each act.
        actions: Step key -> head -> [number of acts of this key, ...].
    """

    episode: int
    keys: Array
    actions: dict[StepKey, Tree]


@dataclass
class StepExtras:
    """What a step returned for a few environments only.

    Attributes:
        finals: (environment, step key, agent id, observation) of each truncated episode.
        actor_rewards: (environment, rewards of the acts of the finished environment step) where attributed.
    """

    finals: list[tuple[int, StepKey, int, dict[str, Array]]]
    actor_rewards: list[tuple[int, Array]]


class VectorEnv(ABC):
    """N environments that step together and start their next episode by themselves.

    Every episode is seeded by the run's seed, the environment's index and the episode's index, so that results do
    not depend on how environments are spread over processes.

    Args:
        spec: What agents see and do.
        stacks: For each environment, its wrappers by name; see `wrapper_stack`.
        seed: The run's seed.
        first_env_index: Index of the first environment among those of all ranks and workers.
        staging: Where observations are read and actions are written, for example in shared memory; made here if None.

    Attributes:
        n_envs: Number of environments.
        always_advances: Whether every act is known to complete an environment step.
    """

    always_advances: bool = False

    def __init__(
        self, spec: Spec, stacks: list[dict[str, Wrapper]], seed: int, first_env_index: int, staging: Staging | None
    ) -> None:
        self.spec, self.n_envs, self.seed, self.first_env_index = spec, len(stacks), seed, first_env_index
        self.staging = staging or Staging(spec, self.n_envs)
        self._stacks = stacks
        self._episode = [0] * self.n_envs
        self._summaries: list[EpisodeSummary] = []

    @abstractmethod
    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes.

        Args:
            envs: Which environments, all if None.
            episodes: Index of the episode that each of them starts, 0 if None.
        """

    @abstractmethod
    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions.

        Args:
            envs: Which environments, all if None.
        """

    def replay(self, histories: Sequence[History], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Bring each environment to where its history ended, then restore the state of its wrappers.

        Raises:
            RuntimeError: Episodes have no seeds of their own here.
        """
        raise RuntimeError(f"{type(self).__name__} cannot play an episode again; reset it instead")

    @abstractmethod
    def close(self) -> None:
        """End the environments and the processes that they live in; safe to call twice."""

    def _finish(self, n: int, summary: EpisodeSummary) -> None:
        """Take over the statistics of an episode that ended."""
        summary.env_index, summary.episode_index = self.first_env_index + n, self._episode[n]
        self._summaries.append(summary)

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended since the last call, in order of environment and episode."""
        summaries, self._summaries = self._summaries, []
        return sorted(summaries, key=lambda summary: (summary.env_index, summary.episode_index))

    def episodes(self) -> list[int]:
        """Index of the episode that each environment is in."""
        return list(self._episode)

    def shared_states(self) -> list[dict[str, Any]]:
        """For each environment, what its wrappers have learned, by position and class path."""
        return [shared_states_of(stack) for stack in self._stacks]

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Give every environment's wrappers what was learned.

        Args:
            state: One entry of `shared_states`, or what `Wrapper.merge_shared_states` makes of them.
            freeze: Whether they stop learning, as evaluation copies do.
        """
        for stack in self._stacks:
            load_shared_states(stack, state, freeze)

    def wrapper_states(self) -> list[dict[str, Any]]:
        """For each environment, the whole state of its wrappers, by position and class path."""
        return [{name: state for name, one in stack.items() if (state := one.state_dict())} for stack in self._stacks]
