"""Several environments stepped together: what is exchanged with them lies in preallocated arrays.

First how each of them is made, and what its wrappers have learned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from maze_pl.envs.contract import describe, name_of
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import Array, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Env = gymnasium.Env[Any, Any]


def make_wrapped(env: Callable[[], Env], wrappers: Sequence[Callable[..., Env]] = ()) -> LogStatsWrapper:
    """An environment with its wrappers, the first of them innermost, and statistics around them.

    Raises:
        TypeError: The environment is none, or one of the wrappers is no wrapper of ours.
    """
    built: Any = _adapt(env())
    for wrapper in wrappers:
        inner, built = built, wrapper(built)
        if built is not inner and all(layer.env is not inner for layer in wrappers_of(built)):
            made = f"{wrapper!r} in the list of wrappers made {describe(built)}, which is no Wrapper of maze_pl around"
            raise TypeError(f"{made} the environment; gymnasium's own wrappers go inside of GymMazeEnv")
    return built if isinstance(built, LogStatsWrapper) else LogStatsWrapper.wrap(built)


def _adapt(env: Any) -> Any:
    """The environment itself if it speaks our interface, otherwise a bare gymnasium environment made to."""
    if isinstance(env, StructuredEnv):
        return env
    if not isinstance(env, gymnasium.Env):
        came = f"the environment factory returned {describe(env)}, which is no gymnasium environment"
        raise TypeError(f"{came}; return a gymnasium.Env, such as GymMazeEnv('CartPole-v1')")
    if isinstance(env.unwrapped, StructuredEnv):
        remedy = "put gymnasium's wrappers inside of GymMazeEnv, and those of maze_pl.envs.wrappers around it"
        kind = f"gymnasium's {type(env).__name__} around {name_of(env)}"
        raise TypeError(f"{kind} hides its sub-steps, masks and events; {remedy}")
    return GymMazeEnv(env)


def wrapper_stack(env: StructuredEnv) -> dict[str, Wrapper]:
    """The wrappers of an environment from the outermost inwards, named by position and class path."""
    return {f"{i}:{type(one).__module__}.{type(one).__qualname__}": one for i, one in enumerate(wrappers_of(env))}


def shared_states_of(stack: Mapping[str, Wrapper]) -> dict[str, Any]:
    """What the wrappers of a stack have learned, under their names, of those that learn."""
    return {name: state for name, wrapper in stack.items() if (state := wrapper.shared_state())}


def load_shared_states(stack: Mapping[str, Wrapper], state: Mapping[str, Any], freeze: bool = False) -> None:
    """Give the wrappers of a stack what was learned.

    Args:
        stack: Result of `wrapper_stack`.
        state: What was learned, by name.
        freeze: Whether they stop learning.

    Raises:
        ValueError: It was learned by other wrappers.
    """
    if unknown := set(state) - set(stack):
        both = f"there are statistics for wrappers {sorted(unknown)}, but the stack is {list(stack)}"
        raise ValueError(f"{both}; use the same wrappers in the same order")
    for name, wrapper in stack.items():
        if name in state:
            wrapper.load_shared_state(state[name])
        if freeze:
            wrapper.freeze()


Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]
MakeEnv = Callable[[], Env]
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
        self.observation = {key: allocate_tree(step.observation_space, shape, allocate) for key, step in steps}
        self.action = {key: allocate_tree(step.action_space, shape, allocate) for key, step in steps}
        self.next_key, self.next_agent, self.env_steps = (allocate(shape, np.dtype(np.int64)) for _ in range(3))
        self.terminated, self.truncated, self.actor_done = (allocate(shape, np.dtype(np.bool_)) for _ in range(3))
        self.reward = allocate(shape, np.dtype(np.float64))

    def slice(self, start: int, stop: int) -> Staging:
        """Views of the environments `start` to `stop`."""
        part = copy(self)
        vars(part).update(mapped(lambda array: array[start:stop], vars(self)))
        return part


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
        self._acts: list[dict[StepKey, dict[str, list[Any]]]] = [{} for _ in stacks]  # actions of running episodes
        self._order: list[list[int]] = [[] for _ in stacks]  # whose they are, unless there is one sub-step
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

    def histories(self) -> list[dict[str, Any]]:
        """For each environment, the acts of the episode that it is in, from which it can be played again.

        Returns:
            The `episode`'s index, `keys` [L], the position among the step keys of each act, and `actions`: step key ->
            head -> [number of acts of this key, ...].
        """
        histories = []
        for episode, order, acts in zip(self._episode, self._order, self._acts, strict=True):
            keys = order or [0] * max(len(values) for tree in acts.values() for values in tree.values())
            actions = mapped(lambda values, like: np.array(values, like.dtype), acts, self.staging.action)
            histories.append({"episode": episode, "keys": np.array(keys, np.int64), "actions": actions})
        return histories

    @abstractmethod
    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Bring each environment to where its history ended, then restore the state of its wrappers.

        Args:
            histories: What `histories` returned.
            wrapper_states: What `wrapper_states` returned.
        """

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
