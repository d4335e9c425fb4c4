"""Several environments stepped together: what is exchanged with them lies in preallocated arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spec import Spec

Array = np.ndarray[Any, np.dtype[Any]]
Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]
EnvFactory = Callable[[], gymnasium.Env[Any, Any]]
Tree = dict[str, Array]


def allocate_private(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory of this process."""
    return np.zeros(shape, dtype)


@dataclass
class Staging:
    """One entry for each of N environments, overwritten by every step.

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

    observation: dict[StepKey, Tree]
    action: dict[StepKey, Tree]
    next_key: Array
    next_agent: Array
    reward: Array
    terminated: Array
    truncated: Array
    env_steps: Array
    actor_done: Array

    @classmethod
    def allocate(cls, spec: Spec, n_envs: int, allocate: Allocate = allocate_private) -> Staging:
        """Arrays for `n_envs` environments."""

        def tree(spaces: dict[str, gymnasium.Space[Any]]) -> Tree:
            return {
                name: allocate((n_envs, *(space.shape or ())), np.dtype(space.dtype or np.float32))
                for name, space in spaces.items()
            }

        integer, number, flag = (np.dtype(kind) for kind in (np.int64, np.float64, np.bool_))
        return cls(
            observation={key: tree(step.observation_space.spaces) for key, step in spec.steps.items()},
            action={key: tree(step.action_space.spaces) for key, step in spec.steps.items()},
            next_key=allocate((n_envs,), integer),
            next_agent=allocate((n_envs,), integer),
            reward=allocate((n_envs,), number),
            terminated=allocate((n_envs,), flag),
            truncated=allocate((n_envs,), flag),
            env_steps=allocate((n_envs,), integer),
            actor_done=allocate((n_envs,), flag),
        )

    def slice(self, start: int, stop: int) -> Staging:
        """Views of the environments `start` to `stop`."""
        part = slice(start, stop)
        return Staging(
            observation={
                key: {name: array[part] for name, array in tree.items()} for key, tree in self.observation.items()
            },
            action={key: {name: array[part] for name, array in tree.items()} for key, tree in self.action.items()},
            **{
                name: getattr(self, name)[part]
                for name in (
                    "next_key",
                    "next_agent",
                    "reward",
                    "terminated",
                    "truncated",
                    "env_steps",
                    "actor_done",
                )
            },
        )


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

    Attributes:
        spec: What agents see and do.
        n_envs: Number of environments.
        staging: Where observations are read and actions are written.
        first_env_index: Index of the first environment among those of all ranks.
        always_advances: Whether every act is known to complete an environment step.
        can_replay: Whether an episode can be played again from its seed and its actions.
        resetting: [N] bool, environments that the next step only resets, whatever their action; None if it never does.
    """

    spec: Spec
    n_envs: int
    staging: Staging
    first_env_index: int = 0
    always_advances: bool = False
    can_replay: bool = True
    resetting: Array | None = None

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

    @abstractmethod
    def drain_summaries(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended since the last call, in order of environment and episode."""

    @abstractmethod
    def episodes(self) -> list[int]:
        """Index of the episode that each environment is in."""

    @abstractmethod
    def shared_states(self) -> list[dict[str, Any]]:
        """For each environment, what its wrappers have learned, by position and class path."""

    @abstractmethod
    def merge_shared_states(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What copies of the same stack of wrappers have learned together, merged in the order given."""

    @abstractmethod
    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Give every environment's wrappers what was learned.

        Args:
            state: Result of `merge_shared_states`, or one entry of `shared_states`.
            freeze: Whether they stop learning, as evaluation copies do.
        """

    @abstractmethod
    def wrapper_states(self) -> list[dict[str, Any]]:
        """For each environment, the whole state of its wrappers, by position and class path."""

    @abstractmethod
    def replay(self, histories: Sequence[History], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Bring each environment to where its history ended, then restore the state of its wrappers."""

    @abstractmethod
    def close(self) -> None:
        """End the environments and the processes that they live in; safe to call twice."""
