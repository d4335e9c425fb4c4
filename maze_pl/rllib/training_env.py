"""An environment as RLlib's workers step it: seeds of episodes, copies of observations, and a report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.building import load_shared_states, shared_states_of, wrapper_stack
from maze_pl.envs.structured_env import Action, Observation
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper


class ActResult(NamedTuple):
    """Result of one act.

    Attributes:
        observation: Observation of the actor that acts next, or the final one.
        reward: The reward that the environment returned.
        terminated: Whether the episode terminated.
        truncated: Whether it was cut off.
        has_advanced: Whether the act finished an environment step.
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    has_advanced: bool

    @property
    def is_over(self) -> bool:
        """True if the episode ended."""
        return self.terminated or self.truncated


@dataclass
class EnvReport:
    """Events of an environment since its last report.

    Attributes:
        summaries: Statistics of the episodes that ended.
        env_steps: Environment time that passed.
        next_episode: Number of the episode after the current one.
        wrapper_statistics: Statistics of its wrappers, by name.
        n_merges: How often the statistics of all environments had been merged when it got them.
    """

    summaries: list[EpisodeSummary] = field(default_factory=list)
    env_steps: int = 0
    next_episode: int = 0
    wrapper_statistics: dict[str, Any] = field(default_factory=dict)
    n_merges: int = 0


class TrainingEnv:
    """One environment of a run. Each episode is reset with the seed that `SequentialVectorEnv` would use.

    Args:
        factory: Makes the environment with its wrappers.
        spec: Observations and actions of the agents.
        seed: Seed of the run.
        env_index: Number of the environment over all workers.
        first_episode: Number of its first episode.
        wrapper_statistics: Statistics of its wrappers, by name.
    """

    def __init__(
        self,
        factory: Callable[[], LogStatsWrapper],
        spec: Spec,
        seed: int,
        env_index: int = 0,
        first_episode: int = 0,
        wrapper_statistics: Mapping[str, Any] | None = None,
    ) -> None:
        self.env = factory()
        self.spec = spec
        self.env_index = env_index
        self._seed = seed
        self._next_episode = first_episode
        self._stack = wrapper_stack(self.env)
        self._time = 0
        self._n_merges = 0
        self._report = EnvReport(next_episode=first_episode)
        if wrapper_statistics:
            self.load_statistics(wrapper_statistics)

    @property
    def actor(self) -> ActorID:
        """The actor that acts next."""
        return self.env.actor_id()

    def reset(self) -> Observation:
        """Start the next episode; return the observation of the first actor."""
        seed = derive_seed(self._seed, "env", self.env_index, self._next_episode)
        self._next_episode += 1
        observation, _ = self.env.reset(seed=seed)
        self._time = self.env.get_env_time()
        return self._copied(observation)

    def step(self, action: Action) -> ActResult:
        """Perform the act of the current actor."""
        observation, reward, terminated, truncated, _ = self.env.step(action)
        now = self.env.get_env_time()
        has_advanced = now > self._time
        self._report.env_steps += now - self._time
        self._time = now
        if terminated or truncated:
            for summary in self.env.drain_episode_summaries():
                summary.env_index = self.env_index
                summary.episode_index = self._next_episode - 1
                self._report.summaries.append(summary)
        copied = self._copied(observation)
        return ActResult(copied, float(reward), bool(terminated), bool(truncated), has_advanced)

    def report(self) -> EnvReport:
        """Return what happened since the last call."""
        report, self._report = self._report, EnvReport()
        report.next_episode = self._next_episode
        report.wrapper_statistics = shared_states_of(self._stack)
        report.n_merges = self._n_merges
        return report

    def load_statistics(self, wrapper_statistics: Mapping[str, Any], n_merges: int = 0) -> None:
        """Replace the statistics of the wrappers.

        Args:
            wrapper_statistics: The statistics, by name.
            n_merges: How often those of all environments have been merged.
        """
        load_shared_states(self._stack, wrapper_statistics)
        self._n_merges = n_merges

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _copied(self, observation: Mapping[str, Any]) -> Observation:
        """Copy the observation of the current actor, as environments may reuse arrays, in the types of its space."""
        space = self.spec.steps[self.actor.step_key].observation_space
        return {name: np.array(observation[name], dtype=part.dtype) for name, part in space.spaces.items()}


def action_of(value: Any, space: spaces.Dict) -> Action:
    """Convert an action of RLlib to the action of an environment.

    Values of a Box are clipped at its bounds, as the vector environments of maze_pl do. RLlib
    learns from the action as it was drawn.

    Args:
        value: Value of the only head, or head -> value.
        space: Action space of the sub-step.
    """
    heads = space.spaces
    values = value if isinstance(value, Mapping) else dict.fromkeys(heads, value)
    action: dict[str, Any] = {}
    for head, part in heads.items():
        if isinstance(part, spaces.Discrete):
            action[head] = int(values[head])
            continue
        action[head] = np.array(values[head], dtype=part.dtype)  # a copy
        if isinstance(part, spaces.Box):
            np.clip(action[head], part.low, part.high, out=action[head])
    return action


def rllib_action_space(space: spaces.Dict) -> spaces.Space[Any]:
    """Return the space of actions that RLlib sees: that of the only head, or all heads."""
    heads = list(space.spaces.values())
    return heads[0] if len(heads) == 1 else space
