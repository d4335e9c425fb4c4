"""Interface of vector environments, which exchange data in preallocated arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.envs.structured_env import Array

Env = gymnasium.Env[Any, Any]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]
MakeEnv = Callable[[], Env]
Tree = dict[str, Array]
Numbers = Sequence[int] | Array


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
        integer, flag = np.dtype(np.int64), np.dtype(np.bool_)
        # Workers take the blocks of shared memory in the order of these lines.
        self.observation = {key: allocate_tree(step.observation_space, shape, allocate) for key, step in steps}
        self.action = {key: allocate_tree(step.action_space, shape, allocate) for key, step in steps}
        self.next_key = allocate(shape, integer)
        self.next_agent = allocate(shape, integer)
        self.env_steps = allocate(shape, integer)
        self.terminated = allocate(shape, flag)
        self.truncated = allocate(shape, flag)
        self.actor_done = allocate(shape, flag)
        self.reward = allocate(shape, np.dtype(np.float64))

    def slice(self, start: int, stop: int) -> Staging:
        """Return views of the environments from `start` up to but not including `stop`."""
        part = copy(self)
        vars(part).update(mapped(lambda array: array[start:stop], vars(self)))
        return part


@dataclass
class FinalGroup:
    """Final observations of truncated episodes, of actors with one step key.

    Attributes:
        envs: [F] int64, the environments.
        key: Step key of the actors that would have acted next.
        agent_ids: [F] int64, their ids.
        observation: Name -> [F, ...], in the dtypes of the staging.
    """

    envs: Array
    key: StepKey
    agent_ids: Array
    observation: Tree


@dataclass
class AttributedRewards:
    """Rewards of the acts of environment steps that have just ended.

    Attributes:
        envs: [F] int64, environments in which an environment step has ended, ascending.
        rewards: [F, L] float64, rewards of its acts, in order; the rest is not read.
        n_acts: [F] int64, number of rewards of each environment; None if there are as many as acts.
    """

    envs: Array
    rewards: Array
    n_acts: Array | None = None

    @classmethod
    def joined(cls, parts: Mapping[int, Array]) -> AttributedRewards:
        """Join the rewards of single environments.

        Args:
            parts: Number of an environment -> [L] rewards of its acts, ascending.

        Raises:
            ValueError: Rewards of an environment have another number of dimensions.
        """
        for n, rewards in parts.items():
            if rewards.ndim != 1:
                came = f"get_actor_rewards() of environment {n} returned shape {rewards.shape}"
                raise ValueError(f"{came}; return one reward for each act of the environment step, in order")
        counts = [len(rewards) for rewards in parts.values()]
        joined = np.zeros((len(parts), max(counts)))
        for place, (rewards, count) in enumerate(zip(parts.values(), counts, strict=True)):
            joined[place, :count] = rewards
        return cls(np.array(list(parts)), joined, np.array(counts))

    def sizes(self) -> Array:
        """Return the sums [F] of the absolute rewards of each environment."""
        n_acts = self.rewards.shape[1] if self.n_acts is None else self.n_acts[:, np.newaxis]
        is_reward = np.arange(self.rewards.shape[1]) < n_acts
        sizes: Array = np.where(is_reward, np.abs(self.rewards), 0.0).sum(axis=1)
        return sizes

    def by_env(self, start: int = 0) -> dict[int, Array]:
        """Return the rewards of each environment, by its number plus `start`."""
        rewards = {}
        for place, n in enumerate(self.envs.tolist()):
            n_acts = self.rewards.shape[1] if self.n_acts is None else int(self.n_acts[place])
            rewards[start + n] = self.rewards[place, :n_acts]
        return rewards


@dataclass
class StepExtras:
    """Results of a step that only some environments have.

    Attributes:
        finals: Final observations of the truncated episodes.
        actor_rewards: Rewards of the acts of finished environment steps, None if rewards are not
            attributed to actors in any of them.
        done_actors: Number of an environment -> actors whose acts in the environment step that has ended
            were their last, if there are any; see `CoreEnv.get_done_actors`.
    """

    finals: list[FinalGroup]
    actor_rewards: AttributedRewards | None = None
    done_actors: dict[int, Sequence[ActorID]] = field(default_factory=dict)


def listed(numbers: Numbers) -> Sequence[int]:
    """Return numbers as Python's, which index lists."""
    return numbers.tolist() if isinstance(numbers, np.ndarray) else numbers


class VectorEnv(ABC):
    """N environments that step together and start their next episodes automatically.

    Every episode is seeded by the run's seed, the environment's index and the episode's index, so
    that results do not depend on how environments are spread over processes.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        staging: Arrays of observations and actions, for example in shared memory; allocated if
            None.

    Attributes:
        always_advances: True if every act is known to complete an environment step.
        waiting: [N] bool, environments without an observation, whose next episode begins in the
            next step of any environments; None if there are none.
    """

    always_advances: bool = False
    waiting: Array | None = None

    def __init__(self, spec: Spec, n_envs: int, seed: int, first_env_index: int, staging: Staging | None) -> None:
        self.spec = spec
        self.n_envs = n_envs
        self.seed = seed
        self.first_env_index = first_env_index
        self.staging = staging or Staging(spec, n_envs)

    @abstractmethod
    def reset(self, envs: Numbers | None = None, episodes: Numbers | None = None) -> None:
        """Start new episodes.

        Args:
            envs: Numbers of the environments, each at most once; all if None.
            episodes: Index of the episode that each of them starts, 0 if None.
        """

    @abstractmethod
    def step(self, envs: Numbers | None = None) -> StepExtras:
        """Perform the staged actions.

        Args:
            envs: Numbers of the environments, all if None.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue the running episodes: arrays and primitives.

        `episodes` is the index of each environment's running episode.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Continue where `state_dict` was taken.

        Returns:
            The environments that did not reach their saved observation, because they are not
            deterministic or depend on a state that was not saved; they have started their next
            episode.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end the processes that they live in; safe to call twice."""

    def write_pending(self) -> list[str]:
        """Write all records and logs of what was played, and wait until they are on the disk.

        Returns:
            Folders of event logs; see `EventLogWriter.write_pending`.
        """
        return []

    @abstractmethod
    def drain_summaries(self) -> Sequence[EpisodeSummary]:
        """Return summaries of episodes that ended since the last call.

        They are sorted by environment and episode.
        """

    @abstractmethod
    def shared_states(self) -> list[dict[str, Any]]:
        """Return, for each environment, its wrappers' statistics by name; see `wrapper_stack`."""

    @abstractmethod
    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Load statistics into the wrappers of every environment.

        Args:
            state: One entry of `shared_states`, or the result of `Wrapper.merge_shared_states`.
            freeze: Whether the wrappers stop updating their statistics, as in evaluation.
        """

    @abstractmethod
    def reset_wrappers(self) -> None:
        """Bring all wrappers back to the state that they had before the first episode.

        Episodes then do not depend on those that were played before. Statistics that copies share
        must be loaded afterwards, and new episodes be started.
        """
