"""Environments that are stepped one after the other in this process; those that are plain without their layers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, check_observation, check_step, explain_step, name_of
from maze_pl.envs.gym_env import GymCoreEnv, GymMazeEnv
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import MakeEnv, Staging, StepExtras, VectorEnv, make_wrapped, wrapper_stack
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.events import BaseEnvEvents
from maze_pl.events.display import number_array
from maze_pl.events.statistics import action_keys, detached


class PlainGymEnvs:
    """The gymnasium environments in a vector in which nothing but statistics is around them.

    Conversions and statistics take about as long as a step of a simple simulation. Where no wrapper, event, KPI or Dict
    space is involved, the statistics follow from actions and rewards alone, so that a vector may step gymnasium's
    environments themselves. Resets go through all layers, which afterwards know nothing of how the episode goes on:
    their time, state and events stay as the reset left them.

    Args:
        envs: Environments for which `are_plain` holds, all of one kind.

    Attributes:
        envs: The gymnasium environments.
        steps: `step` of each of them, once `begin` was called.
        observe: Turns what they return into our observations.
        rewards: For each environment, the rewards of its episode so far.
        taken: For each environment, the actions of its episode so far.
    """

    def __init__(self, envs: Sequence[LogStatsWrapper]) -> None:
        first: Any = envs[0].env
        ((key, space),) = first.action_spaces_dict.items()
        self.envs = [env.core_env.env for env in envs]  # type: ignore[attr-defined]
        self.steps: list[Callable[[Any], Any]] = [env.unwrapped.step for env in envs]  # which refuse before a reset
        self.observe = first.observation_conversion_dict[key].maze_to_space
        self._keys = action_keys(key, space)
        self.rewards: list[list[float]] = [[] for _ in envs]
        self.taken: list[list[Any]] = [[] for _ in envs]

    @staticmethod
    def are_plain(envs: Iterable[Any]) -> bool:
        """Whether stepping the gymnasium environments themselves makes no difference."""
        return all(
            type(env) is LogStatsWrapper
            and type(env.unwrapped) is GymMazeEnv
            and env.env.step == env.unwrapped.step  # monitoring that is switched off lets steps pass by
            and type(env.core_env) is GymCoreEnv
            and spaces.Dict not in (type(env.core_env.env.observation_space), type(env.core_env.env.action_space))
            and list(env.pubsub.topics) == [BaseEnvEvents]
            and not env.pubsub.subscribers
            for env in envs
        )

    def begin(self, n: int, taken: list[Any]) -> None:
        """Environment n starts an episode, whose actions go to a list."""
        self.steps[n] = self.envs[n].step
        self.rewards[n], self.taken[n] = [], taken

    def summary(self, n: int) -> EpisodeSummary:
        """What `LogStatsWrapper` would say of the episode of environment n, which has just ended."""
        taken, rewards = number_array([detached(value) for value in self.taken[n]]), self.rewards[n]
        return EpisodeSummary(dict.fromkeys(self._keys.values(), taken), len(rewards), float(sum(rewards)))

    def check(self, n: int, result: Any) -> None:
        """Look closely at what `step` returned."""
        env = self.envs[n]
        check_step(result, env)
        check_observation(result[0], env.observation_space, f"the observation that step of {name_of(env)} returned")


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
        env_factories: Sequence[MakeEnv],
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
        self.envs = [make_wrapped(factory) for factory in env_factories]
        stacks = [wrapper_stack(env) for env in self.envs]
        super().__init__(spec or Spec.of(self.envs[0]), stacks, seed, first_env_index, staging)
        self.autoreset, self._seed_by_env = autoreset, seed_by_env
        self._flat = self.spec.is_flat
        self._key_index = {key: index for index, key in enumerate(self.spec.step_keys)}
        self._next_key = [self.spec.step_keys[0]] * self.n_envs
        self._env_time, self._all = [0] * self.n_envs, range(self.n_envs)
        self._is_new = True  # until the first step, everything is looked at closely
        self.always_advances = self._flat and PlainGymEnvs.are_plain(self.envs)
        self._plain = PlainGymEnvs(self.envs) if self.always_advances else None
        self.staging.env_steps.fill(self.always_advances)
        heads = {key: step.action_space.spaces.items() for key, step in self.spec.steps.items()}
        self._readers = {key: {head: _reader(part) for head, part in parts} for key, parts in heads.items()}

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
        self._order[n], self._acts[n] = [], mapped(lambda _: [], self.staging.action)
        if self._plain is not None:
            self._plain.begin(n, self._acts[n][self._next_key[n]]["action"])
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
            plain, trace = self._plain, error.__traceback__
            explain_step(error, result, self.envs[n] if plain is None else plain.envs[n])
            if plain is not None and result is not ... and trace is not None and trace.tb_next is None:
                plain.check(n, result)
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
                raise EnvContractError(f"actor_id() names sub-step {key!r}; declared are {self.spec.step_keys}")
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
        extras, chosen = StepExtras([], []), self._all if envs is None else envs
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
        env_steps, flat, acts = staging.env_steps, self._flat, self._acts
        actions = {key: self._given(key) for key in self._readers}
        n, result = 0, cast(Any, ...)
        try:
            for n in chosen:
                env = envs[n]
                for head, kept in acts[n][keys[n]].items():
                    kept.append(staging.action[keys[n]][head][n].copy())
                result = env.step({head: values[n] for head, values in actions[keys[n]].items()})
                observation, rewards[n], terminated, truncated, _ = result
                if terminated or truncated or self._is_new:
                    check_step(result, env)
                terminations[n], truncations[n] = terminated, truncated
                env_time = env.get_env_time()
                env_steps[n] = advanced = env_time - times[n]
                times[n] = env_time
                if not flat:
                    self._order[n].append(self._key_index[keys[n]])
                    staging.actor_done[n] = env.is_actor_done()
                    is_over = advanced or terminated or truncated
                    if is_over and (actor_rewards := env.get_actor_rewards()) is not None:
                        extras.actor_rewards.append((n, np.array(actor_rewards, dtype=np.float64)))
                if terminated or truncated:
                    if truncated and not terminated:
                        extras.finals.append((n, *env.actor_id(), observation))
                    for summary in env.drain_episode_summaries():
                        self._finish(n, summary)
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
        ((_, rows),), (values,) = staging.observation[key].items(), self._given(key).values()
        if isinstance(values, list):  # they get NumPy's integers, as in gymnasium's vectors, which are checked faster
            actions, kept = list(staging.action[key]["action"]), values
        else:
            actions, kept = values, values.copy()  # theirs to change
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
                    self._finish(n, plain.summary(n))
                    if self.autoreset:
                        self._episode[n] += 1
                        self._observe(n, self._reset(n))
                else:
                    rows[n] = observation
        except Exception as error:
            self._explain(n, error, result)
            raise

    def _given(self, key: StepKey) -> dict[str, Any]:
        """Head -> [N, ...] staged actions of a sub-step, as environments expect them."""
        staged = self.staging.action[key]
        return {head: read(staged[head]) for head, read in self._readers[key].items()}

    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Play episodes again up to where they were; see `VectorEnv.replay`."""
        step_keys = self.spec.step_keys
        autoreset, self.autoreset = self.autoreset, False
        for n, (history, states) in enumerate(zip(histories, wrapper_states, strict=True)):
            self._episode[n], self.envs[n].context.is_logged = history["episode"], False
            self._begin(n)
            taken = dict.fromkeys(step_keys, 0)
            for index in history["keys"].tolist():
                key = step_keys[index]
                for head, values in history["actions"][key].items():
                    self.staging.action[key][head][n] = values[taken[key]]
                taken[key] += 1
                self.step([n])
                if self.staging.terminated[n] or self.staging.truncated[n]:  # not as it was: the caller will notice
                    self._summaries.clear()
                    self._begin(n)
                    break
            self.envs[n].context.is_logged = True
            for name, wrapper in self._stacks[n].items():
                if name in states:
                    wrapper.load_state_dict(states[name])
        self.autoreset = autoreset

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _reader(space: spaces.Space[Any]) -> Callable[[Array], Any]:
    """What takes staged actions of a head over: integers become Python's own, those of a Box stay within its bounds."""
    if isinstance(space, spaces.Discrete):
        return np.ndarray.tolist
    if isinstance(space, spaces.Box) and (space.bounded_below.any() or space.bounded_above.any()):
        return lambda staged: np.clip(staged, space.low, space.high)
    return np.ndarray.copy
