"""Environments of a vector that live in this process, with their wrappers and running episodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spec import Spec
from maze_pl.envs.building import (
    estimate_shared_states,
    load_shared_states,
    make_wrapped,
    shared_states_of,
    states_of,
    wrapper_stack,
)
from maze_pl.envs.vector.made_environments import MadeEnvironments
from maze_pl.envs.vector.replayed_vector_env import ReplayedVectorEnv
from maze_pl.envs.vector.running_episodes import RunningEpisodes
from maze_pl.envs.vector.step_clock import StepClock, TimedWrapper
from maze_pl.envs.vector.vector_env import MakeEnv, Staging
from maze_pl.envs.vector.wrapper_starts import WrapperStarts, merges_statistics
from maze_pl.envs.wrapper import ObservationWrapper, Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.system.deferred_files import deferred_files

T = TypeVar("T")


class LocalVectorEnv(ReplayedVectorEnv):
    """Makes single environments, and gives access to them and to their wrappers.

    Args:
        env_factories: One callable without arguments for each environment.
        spec: Observation and action spaces of the agents; read from the first environment if None.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        staging: Arrays to use; allocated if None.
        clock: Records that environments are being made, and what runs.

    Attributes:
        envs: The environments.

    Raises:
        ValueError: Two of the environments are the same object.
    """

    def __init__(
        self,
        env_factories: Sequence[MakeEnv],
        spec: Spec | None,
        seed: int,
        first_env_index: int,
        staging: Staging | None,
        clock: StepClock | None,
    ) -> None:
        self._clock = clock
        made = MadeEnvironments()
        makers = [partial(self._made, n, factory) for n, factory in enumerate(env_factories)]
        self.envs = [made.new(maker) for maker in makers]
        super().__init__(spec or Spec.of(self.envs[0]), len(self.envs), seed, first_env_index, staging)
        self._stacks: list[dict[str, Wrapper]] = [wrapper_stack(env) for env in self.envs]
        self._starts = WrapperStarts(self._stacks)
        self._episodes = RunningEpisodes(self.staging, self.n_envs, first_env_index)

    def _made(self, n: int, factory: MakeEnv) -> LogStatsWrapper:
        """Make an environment, and record in the clock that it is being made."""
        if self._clock is not None:
            self._clock.begin(n, StepClock.MAKING)
        env = make_wrapped(factory)
        if self._clock is not None:
            self._clock.end()
        return env

    def episodes(self) -> list[int]:
        """Return the index of each environment's current episode."""
        return list(self._episodes.numbers)

    def episode_rewards(self) -> list[float]:
        """Return sums of the running episodes' rewards; see `ReplayedVectorEnv.episode_rewards`."""
        return list(self._episodes.rewards)

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Return summaries of episodes that ended; see `VectorEnv.drain_summaries`."""
        return self._episodes.drain_summaries()

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the wrappers' statistics; see `VectorEnv.shared_states`."""
        return [shared_states_of(stack) for stack in self._stacks]

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Load statistics into all wrappers; see `VectorEnv.load_shared_states`.

        The rewards of a running episode may depend on them, and a replay does not load them.
        """
        for n, stack in enumerate(self._stacks):
            load_shared_states(stack, state, freeze)
            if any(_may_change_rewards(type(wrapper)) for wrapper in stack.values()):
                self._episodes.rewards[n] = math.nan

    def wrapper_states(self) -> list[dict[str, Any]]:
        """Return the wrappers' full states; see `ReplayedVectorEnv.wrapper_states`."""
        return [states_of(stack) for stack in self._stacks]

    def write_pending(self) -> list[str]:
        """Write all records and logs; see `VectorEnv.write_pending`."""
        written = [wrapper.write_pending() for stack in self._stacks for wrapper in stack.values()]
        deferred_files().flush()
        return list(dict.fromkeys(folder for folder in written if folder is not None))

    def reset_wrappers(self) -> None:
        """Bring all wrappers back to their first state; see `VectorEnv.reset_wrappers`."""
        self._starts.load_first()

    def of_each(self, function: Callable[[LogStatsWrapper], T], envs: Sequence[int] | None = None) -> list[T]:
        """Call a function with environments, in the process that they live in; return its results.

        Args:
            function: Function of one environment.
            envs: Numbers of the environments, all if None.
        """
        chosen = range(self.n_envs) if envs is None else envs
        return [function(self.envs[n]) for n in chosen]

    def estimate(self, n_samples: int, seed: int, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Have the wrappers of the first environment estimate the statistics that they need.

        Args:
            n_samples: Number of observations to estimate from.
            seed: Determines the episodes and the actions.
            known: Statistics that some wrappers already have, by name; these wrappers are not
                estimated again.

        Returns:
            Statistics of all wrappers, by name; see `wrapper_stack`.
        """
        env: Wrapper = self.envs[0] if self._clock is None else TimedWrapper(self.envs[0], self._clock)
        self.envs[0].context.is_logged = False
        states = estimate_shared_states(env, self._stacks[0], n_samples, seed, known or {})
        self.envs[0].context.is_logged = True
        return states

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _may_change_rewards(kind: type[Wrapper]) -> bool:
    """True if merged statistics of a wrapper may change rewards, not observations, which are compared as well."""
    return merges_statistics(kind) and not issubclass(kind, ObservationWrapper)
