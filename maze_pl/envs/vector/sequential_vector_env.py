"""Environments that are stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.vector.vector_env import EnvFactory, History, Staging, StepExtras, VectorEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper


def adapt(env: Any) -> Any:
    """The environment itself if it speaks our interface, otherwise a bare gymnasium environment made to."""
    if isinstance(env, StructuredEnv):
        return env
    if not isinstance(env, gymnasium.Env):
        raise TypeError(f"the environment factory returned {env!r}, which is no gymnasium environment")
    return GymMazeEnv(env)


def with_statistics(env: Any) -> LogStatsWrapper:
    """The environment with statistics kept around it."""
    return env if isinstance(env, LogStatsWrapper) else LogStatsWrapper.wrap(env)


def wrapper_stack(env: Any) -> Iterator[tuple[str, Wrapper]]:
    """The wrappers of an environment from the outermost inwards, named by position and class path."""
    position = 0
    while Wrapper in type(env).__mro__:  # isinstance would see through to wrappers further in
        yield f"{position}:{type(env).__module__}.{type(env).__qualname__}", env
        env, position = env.env, position + 1


class SequentialVectorEnv(VectorEnv):
    """Steps its environments in a loop; the fastest way for environments that are cheap.

    Args:
        env_factories: One callable without arguments for each environment.
        seed: The run's seed.
        first_env_index: Index of the first environment among those of all ranks and workers.
        spec: What agents see and do; read from the first environment if None.
        autoreset: Whether an environment starts its next episode with the step that ended one.
        seed_by_env: Whether episodes of the same index differ between environments.
        staging: Arrays to use, for example in shared memory.
    """

    def __init__(
        self,
        env_factories: Sequence[EnvFactory],
        *,
        seed: int = 0,
        first_env_index: int = 0,
        spec: Spec | None = None,
        autoreset: bool = True,
        seed_by_env: bool = True,
        staging: Staging | None = None,
    ) -> None:
        if not env_factories:
            raise ValueError("a vector environment needs at least one environment factory")
        self.envs = [with_statistics(adapt(factory())) for factory in env_factories]
        self.n_envs = len(self.envs)
        self.spec = spec or Spec.of(self.envs[0])
        self.staging = staging or Staging.allocate(self.spec, self.n_envs)
        self.seed, self.first_env_index, self.autoreset = seed, first_env_index, autoreset
        self._seed_by_env = seed_by_env
        self._flat = self.spec.is_flat
        self._key_index = {key: index for index, key in enumerate(self.spec.step_keys)}
        self._next_key = [self.spec.step_keys[0]] * self.n_envs
        self._episode = [0] * self.n_envs
        self._env_time = [0] * self.n_envs
        self._summaries: list[EpisodeSummary] = []
        self._all = range(self.n_envs)
        self._heads = {
            key: [
                (head, isinstance(space, spaces.Discrete), self._clip_bounds(space))
                for head, space in step.action_space.spaces.items()
            ]
            for key, step in self.spec.steps.items()
        }

    @staticmethod
    def _clip_bounds(space: gymnasium.Space[Any]) -> tuple[Any, Any] | None:
        """Bounds that actions are clipped to, None where there are none."""
        if isinstance(space, spaces.Box) and (space.bounded_below.any() or space.bounded_above.any()):
            return space.low, space.high
        return None

    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        for position, n in enumerate(self._all if envs is None else envs):
            self._episode[n] = episodes[position] if episodes is not None else 0
            self._observe(n, self._reset(n))

    def _reset(self, n: int) -> dict[str, Any]:
        index = self.first_env_index + n if self._seed_by_env else 0
        seed = derive_seed(self.seed, "env", index, self._episode[n])
        observation: dict[str, Any] = self.envs[n].reset(seed=seed)[0]
        self._env_time[n] = self.envs[n].get_env_time()
        return observation

    def _observe(self, n: int, observation: dict[str, Any]) -> None:
        """Stage what the next actor of an environment sees."""
        staging = self.staging
        if self._flat:
            key = self._next_key[n]
        else:
            key, agent_id = self.envs[n].actor_id()
            if key not in self._key_index:
                raise ValueError(f"actor_id() names sub-step {key!r}; the environment declared {self.spec.step_keys}")
            self._next_key[n] = key
            staging.next_key[n] = self._key_index[key]
            staging.next_agent[n] = agent_id
        try:
            for name, rows in staging.observation[key].items():
                rows[n] = observation[name]
        except KeyError as error:
            raise ValueError(
                f"the observation of sub-step {key!r} has {sorted(observation)}, "
                f"its space has {sorted(staging.observation[key])}"
            ) from error

    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        staging = self.staging
        actions = {
            key: [
                (head, self._actions(staging.action[key][head], as_list, bounds))
                for head, as_list, bounds in self._heads[key]
            ]
            for key in self._heads
        }
        extras = StepExtras([], [])
        rewards, terminations, truncations = staging.reward, staging.terminated, staging.truncated
        for n in self._all if envs is None else envs:
            env = self.envs[n]
            action = {head: values[n] for head, values in actions[self._next_key[n]]}
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards[n] = reward
            terminations[n] = terminated
            truncations[n] = truncated
            env_time = env.get_env_time()
            advanced = env_time - self._env_time[n]
            self._env_time[n] = env_time
            staging.env_steps[n] = advanced
            if not self._flat:
                staging.actor_done[n] = env.is_actor_done()
                if advanced or terminated or truncated:
                    actor_rewards = env.get_actor_rewards()
                    if actor_rewards is not None:
                        extras.actor_rewards.append((n, np.array(actor_rewards, dtype=np.float64)))
            if terminated or truncated:
                if truncated and not terminated:
                    key, agent_id = env.actor_id()
                    extras.finals.append((n, key, agent_id, observation))
                self._finish(n)
                if not self.autoreset:
                    continue
                self._episode[n] += 1
                observation = self._reset(n)
            self._observe(n, observation)
        return extras

    @staticmethod
    def _actions(staged: Any, as_list: bool, bounds: tuple[Any, Any] | None) -> Any:
        """Actions as environments expect them: integers as Python's own, boxes within their bounds."""
        if as_list:
            return staged.tolist()
        return staged.copy() if bounds is None else np.clip(staged, *bounds)

    def _finish(self, n: int) -> None:
        """Take over the statistics of an episode that ended."""
        for summary in self.envs[n].drain_episode_summaries():
            summary.env_index = self.first_env_index + n
            summary.episode_index = self._episode[n]
            self._summaries.append(summary)

    def drain_summaries(self) -> list[EpisodeSummary]:
        """Summaries of ended episodes; see `VectorEnv.drain_summaries`."""
        summaries, self._summaries = self._summaries, []
        return sorted(summaries, key=lambda summary: (summary.env_index, summary.episode_index))

    def episodes(self) -> list[int]:
        """Index of the episode that each environment is in."""
        return list(self._episode)

    def shared_states(self) -> list[dict[str, Any]]:
        """What each environment's wrappers have learned; see `VectorEnv.shared_states`."""
        return [
            {name: state for name, wrapper in wrapper_stack(env) if (state := wrapper.shared_state())}
            for env in self.envs
        ]

    def merge_shared_states(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge what copies have learned; see `VectorEnv.merge_shared_states`."""
        return {
            name: wrapper.merge_shared_states([state[name] for state in states])
            for name, wrapper in wrapper_stack(self.envs[0])
            if name in states[0]
        }

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Distribute what was learned; see `VectorEnv.load_shared_states`."""
        for env in self.envs:
            wrappers = dict(wrapper_stack(env))
            if unknown := set(state) - set(wrappers):
                raise ValueError(
                    f"there are statistics for wrappers {sorted(unknown)}, but the stack is {list(wrappers)}; "
                    "use the same wrappers in the same order"
                )
            for name, wrapper in wrappers.items():
                if name in state:
                    wrapper.load_shared_state(state[name])
                if freeze:
                    wrapper.freeze()

    def wrapper_states(self) -> list[dict[str, Any]]:
        """Whole state of each environment's wrappers; see `VectorEnv.wrapper_states`."""
        return [
            {name: state for name, wrapper in wrapper_stack(env) if (state := wrapper.state_dict())}
            for env in self.envs
        ]

    def replay(self, histories: Sequence[History], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Play episodes again up to where they were; see `VectorEnv.replay`."""
        step_keys = self.spec.step_keys
        for n, (history, states) in enumerate(zip(histories, wrapper_states, strict=True)):
            self._episode[n] = history.episode
            self._observe(n, self._reset(n))
            taken = dict.fromkeys(step_keys, 0)
            for index in history.keys.tolist():
                key = step_keys[index]
                action = {}
                for head, as_list, bounds in self._heads[key]:
                    action[head] = self._actions(history.actions[key][head][taken[key]], as_list, bounds)
                taken[key] += 1
                observation, _, terminated, truncated, _ = self.envs[n].step(action)
                self._env_time[n] = self.envs[n].get_env_time()
                if terminated or truncated:
                    self.envs[n].drain_episode_summaries()
                    self._observe(n, self._reset(n))
                    break
                self._observe(n, observation)
            for name, wrapper in wrapper_stack(self.envs[n]):
                if name in states:
                    wrapper.load_state_dict(states[name])

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
