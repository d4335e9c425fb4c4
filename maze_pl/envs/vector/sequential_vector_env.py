"""Environments that are stepped one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, check_observation, check_step, describe, explain_step
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.vector.plain_gym import PlainGymEnvs
from maze_pl.envs.vector.vector_env import EnvFactory, History, Staging, StepExtras, VectorEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper


def adapt(env: Any) -> Any:
    """The environment itself if it speaks our interface, otherwise a bare gymnasium environment made to."""
    if isinstance(env, StructuredEnv):
        return env
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"the environment factory returned {describe(env)}, which is no gymnasium environment; "
            "return a gymnasium.Env, such as GymMazeEnv('CartPole-v1')"
        )
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
        self._is_new = True  # until the first step, everything is looked at closely
        self._plain: PlainGymEnvs | None = None
        if self._flat and PlainGymEnvs.are_plain(self.envs):
            self._plain = PlainGymEnvs(self.envs)
            self.staging.env_steps.fill(1)
        self.always_advances = self._plain is not None
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
            self._begin(n)

    def _begin(self, n: int) -> None:
        """Start an episode and stage what is seen first."""
        try:
            self._observe(n, self._reset(n))
        except Exception as error:
            self._explain(n, error, ...)
            raise

    def _reset(self, n: int) -> dict[str, Any]:
        index = self.first_env_index + n if self._seed_by_env else 0
        seed = derive_seed(self.seed, "env", index, self._episode[n])
        observation: dict[str, Any] = self.envs[n].reset(seed=seed)[0]
        self._env_time[n] = self.envs[n].get_env_time()
        if self._plain is not None:
            self._plain.begin(n)
        return observation

    def _explain(self, n: int, error: Exception, result: Any) -> None:
        """Raise what an exception comes from, with the environment's number, if the environment broke its contract.

        Args:
            n: The environment that was at turn.
            error: The exception.
            result: What its step returned, `...` if nothing.
        """
        try:
            if isinstance(error, EnvContractError):
                raise error
            if self._plain is not None:
                self._plain.explain(n, error, result)
            else:
                explain_step(error, result, self.envs[n])
        except EnvContractError as told:
            raise EnvContractError(f"environment {self.first_env_index + n}: {told}") from error

    def _observe(self, n: int, observation: dict[str, Any]) -> None:
        """Stage what the next actor of an environment sees."""
        staging = self.staging
        if self._flat:
            key = self._next_key[n]
        else:
            key, agent_id = self.envs[n].actor_id()
            if key not in self._key_index:
                raise EnvContractError(
                    f"actor_id() names sub-step {key!r}; the environment declared {self.spec.step_keys}"
                )
            self._next_key[n] = key
            staging.next_key[n] = self._key_index[key]
            staging.next_agent[n] = agent_id
        if self._is_new:
            self._check(key, observation)
        try:
            for name, rows in staging.observation[key].items():
                rows[n] = observation[name]
        except (KeyError, TypeError, ValueError):
            self._check(key, observation)
            raise

    def _check(self, key: StepKey, observation: Any) -> None:
        space = self.spec.steps[key].observation_space
        check_observation(observation, space, f"the observation of sub-step {key!r}")

    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        extras = StepExtras([], [])
        chosen = self._all if envs is None else envs
        if self._plain is None:
            self._step(chosen, extras)
        else:
            self._step_plain(self._plain, chosen, extras)
        self._is_new = False
        return extras

    def _step(self, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step environments of any kind."""
        staging, envs, keys, times = self.staging, self.envs, self._next_key, self._env_time
        rewards, terminations, truncations = staging.reward, staging.terminated, staging.truncated
        env_steps, flat = staging.env_steps, self._flat
        actions = {key: self._given(key) for key in self._heads}
        n, result = 0, cast(Any, ...)
        try:
            for n in chosen:
                env = envs[n]
                result = env.step({head: values[n] for head, values in actions[keys[n]].items()})
                observation, rewards[n], terminated, truncated, _ = result
                if terminated or truncated or self._is_new:
                    check_step(result, env)
                terminations[n] = terminated
                truncations[n] = truncated
                env_time = env.get_env_time()
                env_steps[n] = advanced = env_time - times[n]
                times[n] = env_time
                if not flat:
                    staging.actor_done[n] = env.is_actor_done()
                    if advanced or terminated or truncated:
                        actor_rewards = env.get_actor_rewards()
                        if actor_rewards is not None:
                            extras.actor_rewards.append((n, np.array(actor_rewards, dtype=np.float64)))
                if terminated or truncated:
                    if truncated and not terminated:
                        extras.finals.append((n, *env.actor_id(), observation))
                    self._finish(n, env.drain_episode_summaries())
                    if not self.autoreset:
                        continue
                    self._episode[n] += 1
                    observation = self._reset(n)
                self._observe(n, observation)
        except Exception as error:
            self._explain(n, error, result)
            raise

    def _step_plain(self, plain: PlainGymEnvs, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step gymnasium's environments themselves, past conversions and statistics, with the same results."""
        staging, steps, all_rewards, all_taken = self.staging, plain.steps, plain.rewards, plain.taken
        key, is_new = self._next_key[0], self._is_new
        staged_reward = staging.reward
        rows = staging.observation[key]["observation"] if plain.has_one_observation else None
        actions, kept = plain.actions(self._given(key), staging.action[key])
        staging.terminated.fill(False)
        staging.truncated.fill(False)
        n, result = 0, cast(Any, ...)
        try:
            for n in chosen:
                result = steps[n](actions[n])
                observation, reward, terminated, truncated, _ = result
                staged_reward[n] = reward = float(reward)
                all_rewards[n].append(reward)
                all_taken[n].append(kept[n])
                if is_new:
                    plain.check(n, result)
                if terminated or truncated:
                    if type(terminated) is not bool or type(truncated) is not bool:
                        plain.check(n, result)
                    staging.terminated[n], staging.truncated[n] = terminated, truncated
                    if truncated and not terminated:
                        extras.finals.append((n, key, 0, plain.observe(observation)))
                    self._finish(n, [plain.summary(n)])
                    if self.autoreset:
                        self._episode[n] += 1
                        self._observe(n, self._reset(n))
                elif rows is not None:
                    rows[n] = observation
                else:
                    self._observe(n, plain.observe(observation))
        except Exception as error:
            self._explain(n, error, result)
            raise

    def _given(self, key: StepKey) -> dict[str, Any]:
        """Head -> [N, ...] staged actions of a sub-step, as environments expect them."""
        staged = self.staging.action[key]
        return {head: self._actions(staged[head], as_list, bounds) for head, as_list, bounds in self._heads[key]}

    @staticmethod
    def _actions(staged: Any, as_list: bool, bounds: tuple[Any, Any] | None) -> Any:
        """Actions as environments expect them: integers as Python's own, boxes within their bounds."""
        if as_list:
            return staged.tolist()
        return staged.copy() if bounds is None else np.clip(staged, *bounds)

    def _finish(self, n: int, summaries: list[EpisodeSummary]) -> None:
        """Take over the statistics of an episode that ended."""
        for summary in summaries:
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
            self._begin(n)
            taken = dict.fromkeys(step_keys, 0)
            autoreset, self.autoreset = self.autoreset, False
            for index in history.keys.tolist():
                key = step_keys[index]
                for head, values in history.actions[key].items():
                    self.staging.action[key][head][n] = values[taken[key]]
                taken[key] += 1
                self.step([n])
                if self.staging.terminated[n] or self.staging.truncated[n]:  # not as it was: the caller will notice
                    self._summaries.clear()
                    self._begin(n)
                    break
            self.autoreset = autoreset
            for name, wrapper in wrapper_stack(self.envs[n]):
                if name in states:
                    wrapper.load_state_dict(states[name])

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
