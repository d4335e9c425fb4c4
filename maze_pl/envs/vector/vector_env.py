"""Interface of vector environments, which exchange data in preallocated arrays.

The first part makes environments and exchanges the statistics of their wrappers.
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
from maze_pl.envs.wrappers.action_masks_wrapper import require_used, with_action_masks
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Env = gymnasium.Env[Any, Any]


def make_wrapped(
    env: Callable[[], Env],
    wrappers: Sequence[Callable[..., Env]] = (),
    action_masks: Mapping[str, str] | None = None,
) -> LogStatsWrapper:
    """Make an environment with its wrappers, the first one innermost, and statistics outermost.

    Args:
        env: Makes the environment.
        wrappers: Each wraps the result of the one before it.
        action_masks: Action head -> observation, in addition to the masks that the environment and
            the wrappers declare; see `ActionMasksWrapper`.

    Raises:
        TypeError: The factory does not make an environment, or a wrapper is not a `Wrapper` of
            maze_pl.
        ValueError: An action mask does not match any sub-step.
    """
    masks = action_masks or {}
    built: Any = with_action_masks(_adapt(env()), masks)
    for wrapper in wrappers:
        inner, built = built, wrapper(built)
        if built is not inner and all(layer.env is not inner for layer in wrappers_of(built)):
            made = f"{wrapper!r} in the list of wrappers made {describe(built)}, which is no Wrapper of maze_pl around"
            raise TypeError(f"{made} the environment; gymnasium's own wrappers go inside of GymMazeEnv")
        built = with_action_masks(built, masks)
    require_used(built, masks)
    return built if issubclass(type(built), LogStatsWrapper) else LogStatsWrapper.wrap(built)


def _adapt(env: Any) -> Any:
    """Return a `StructuredEnv` as it is, and wrap a plain gymnasium environment in `GymMazeEnv`."""
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
    """Return the wrappers of an environment by name, from the outermost inwards.

    Their statistics are saved under these names. A name is the class path. If a class occurs
    several times, its position among these follows, counted from the inside as in a list of
    wrappers: `path (1 of 2)`. Thus a name does not depend on wrappers of other classes.
    """
    wrappers = list(wrappers_of(env))
    paths = [f"{type(one).__module__}.{type(one).__qualname__}" for one in wrappers]
    names = []
    for place, path in enumerate(paths):
        n, number = paths.count(path), paths[place:].count(path)
        names.append(path if n == 1 else f"{path} ({number} of {n})")
    return dict(zip(names, wrappers, strict=True))


def class_of(name: str) -> str:
    """Return the class path in a wrapper's name from `wrapper_stack`."""
    return name.partition(" (")[0]


def shared_states_of(stack: Mapping[str, Wrapper]) -> dict[str, Any]:
    """Return the statistics of the wrappers that have any, by name."""
    return {name: state for name, wrapper in stack.items() if (state := wrapper.shared_state())}


def load_shared_states(stack: Mapping[str, Wrapper], state: Mapping[str, Any], freeze: bool = False) -> None:
    """Load statistics into the wrappers of a stack.

    Args:
        stack: Result of `wrapper_stack`.
        state: Statistics, by name.
        freeze: Whether the wrappers stop updating their statistics.

    Raises:
        ValueError: The statistics are for other wrappers, or those of a wrapper are missing.
    """
    if unknown := set(state) - set(stack):
        both = f"there are statistics for wrappers {sorted(unknown)}, but the stack is {list(stack)}"
        raise ValueError(f"{both}; use the same wrappers")
    for name, wrapper in stack.items():
        if name in state:
            wrapper.load_shared_state(state[name])
        elif wrapper.shared_state():
            raise ValueError(f"there are no statistics for the wrapper {name}, but for {sorted(state)}; {_ALL_OR_NONE}")
        if freeze:
            wrapper.freeze()


_ALL_OR_NONE = "use the wrappers with which these were learned"


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
        self, spec: Spec, stacks: list[dict[str, Wrapper]], seed: int, first_env_index: int, staging: Staging | None
    ) -> None:
        self.spec, self.n_envs, self.seed, self.first_env_index = spec, len(stacks), seed, first_env_index
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
        return [{name: state for name, one in stack.items() if (state := one.state_dict())} for stack in self._stacks]
