"""Vector environment that steps its environments one after the other in this process.

Plain gymnasium environments are stepped without the layers around them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.core.state_rules import StateError
from maze_pl.envs.building import make_wrapped, shared_states_of, wrapper_stack
from maze_pl.envs.contract import (
    FLAGS,
    NUMBERS,
    EnvContractError,
    check_observation,
    check_reset,
    check_step,
    explain_step,
    name_of,
)
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.episode_state import (
    ACTS_BEFORE_STATE,
    MOST_REPLAYED_ACTS,
    check_episode,
    first_acts,
    give_episode,
    take_episode,
)
from maze_pl.envs.vector.plain_gym_envs import PlainGymEnvs
from maze_pl.envs.vector.step_clock import StepClock, TimedWrapper
from maze_pl.envs.vector.vector_env import MakeEnv, Staging, StepExtras, VectorEnv
from maze_pl.envs.wrapper import Wrapper, attributes_rewards
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

T = TypeVar("T")
MAX_ACTS_PER_ENV_STEP = 10_000
_N_STANDSTILLS = 3  # episodes without an environment step: more than chance
_REMEDY = "call self.context.increment_env_step() in the act that completes an environment step"


_Place = tuple[str, Array, tuple[int, ...], np.dtype[Any]]
"""Name of an observation, its staging array `[N, ...]`, its shape and a dtype that fits."""


class _TakenState(NamedTuple):
    """Saved state of an environment in its running episode.

    Attributes:
        state: Result of `take_episode`.
        n_before: Number of acts of the episode to replay before restoring the state.
        n_taken: Number of actions that a plain environment's list held at that time.
    """

    state: Any
    n_before: int
    n_taken: int


class SequentialVectorEnv(VectorEnv):
    """Steps its environments in a loop; the fastest choice for cheap environments.

    Args:
        env_factories: One callable without arguments for each environment.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        spec: Observation and action spaces of the agents; read from the first environment if None.
        autoreset: Whether the step that ends an episode also starts the next one.
        seed_by_env: Whether episodes of the same index differ between environments.
        staging: Arrays to use, for example in shared memory.
        clock: Records the running step or reset, so that another process can end this one if an
            environment hangs.
        check: Check of every step's results. `fast` requires observations with the shape of their
            space, numeric observations and rewards, and boolean flags. `full` checks the whole
            contract: also that values lie within bounds and have a dtype of their space, and that
            there are no surplus entries.

    Raises:
        ValueError: There are no environments, or `check` is unknown.
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
        clock: StepClock | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        if not env_factories:
            raise ValueError("a vector environment needs at least one environment factory")
        if check not in ("fast", "full"):
            raise ValueError(f"check={check!r} must be 'fast' or 'full'")
        self._clock = clock
        self.envs = [self._made(n, factory) for n, factory in enumerate(env_factories)]
        stacks = [wrapper_stack(env) for env in self.envs]
        super().__init__(spec or Spec.of(self.envs[0]), stacks, seed, first_env_index, staging)
        self.autoreset, self._seed_by_env = autoreset, seed_by_env
        self._flat = self.spec.is_flat
        self._key_index = {key: index for index, key in enumerate(self.spec.step_keys)}
        self._next_key = [self.spec.step_keys[0]] * self.n_envs
        self._all = range(self.n_envs)
        self._env_time, self._began_at = [0] * self.n_envs, [0] * self.n_envs
        self._n_idle = [0] * self.n_envs  # acts since environment time advanced
        self._n_standstills: int | None = None if self._flat else 0  # None once time has advanced anywhere
        self._attributes = any(map(attributes_rewards, self.envs))
        self._is_exact = check == "full"
        self._factories = list(env_factories)
        self._states: list[_TakenState | None] = [None] * self.n_envs
        self._is_state_checked, self._refusal = False, ""  # the reason why states cannot be taken
        self._is_new = True  # check in full until the first step, or always if exact
        self._places: dict[StepKey, list[_Place]] = {}
        for key, tree in self.staging.observation.items():
            self._places[key] = [(name, rows, rows.shape[1:], rows.dtype) for name, rows in tree.items()]
        self.always_advances = self._flat and PlainGymEnvs.are_plain(self.envs)
        self._plain = PlainGymEnvs(self.envs) if self.always_advances else None
        self.staging.env_steps.fill(self.always_advances)
        self._readers: dict[StepKey, dict[str, Callable[[Array], Any]]] = {}
        for key, step in self.spec.steps.items():
            heads = step.action_space.spaces.items()
            self._readers[key] = {head: _reader(space) for head, space in heads}

    def _made(self, n: int, factory: MakeEnv) -> LogStatsWrapper:
        """Make an environment, and record in the clock that it is being made."""
        if self._clock is not None:
            self._clock.begin(n, StepClock.MAKING)
        env = make_wrapped(factory)
        if self._clock is not None:
            self._clock.end()
        return env

    def reset(self, envs: Sequence[int] | None = None, episodes: Sequence[int] | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        for position, n in enumerate(self._all if envs is None else envs):
            self._episode[n] = episodes[position] if episodes is not None else 0
            self._begin(n)

    def _begin(self, n: int) -> None:
        """Start an episode and stage its first observation."""
        try:
            self._observe(n, self._reset(n))
        except Exception as error:
            self._explain(n, error, ...)
            raise

    def _reset(self, n: int) -> dict[str, Any]:
        index = self.first_env_index + n if self._seed_by_env else 0
        seed = derive_seed(self.seed, "env", index, self._episode[n])
        if self._clock is not None:
            self._clock.begin(n, self._episode[n], is_reset=True)
        result: Any = self.envs[n].reset(seed=seed)
        if self._clock is not None:
            self._clock.end()
        if self._is_exact:
            check_reset(result, self.envs[n])
        observation: dict[str, Any] = result[0]
        self._env_time[n] = self._began_at[n] = self.envs[n].get_env_time()
        self._n_idle[n] = 0
        self._order[n], self._acts[n] = [], mapped(lambda _: [], self.staging.action)
        self._states[n] = None
        if self._plain is not None:
            self._plain.begin(n, self._acts[n][self._next_key[n]]["action"])
        return observation

    def _explain(self, n: int, error: Exception, result: Any) -> None:
        """Raise an error with the environment's number if it broke its contract.

        Args:
            n: Number of the environment that was being stepped or reset.
            error: The exception.
            result: Result of its step, `...` if there is none.
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
        """Stage the observation of an environment's next actor."""
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
            for name, rows, shape, dtype in self._places[key]:
                value = observation[name]
                if type(value) is not np.ndarray:
                    value = np.asarray(value)
                if value.shape != shape or value.dtype is not dtype:
                    self._check(key, observation)
                    self._accept(key, name, value.dtype)
                rows[n] = value
        except (KeyError, TypeError, ValueError):
            self._check(key, observation)
            raise

    def _accept(self, key: StepKey, name: str, dtype: np.dtype[Any]) -> None:
        """Stop checking observations of a dtype that can be staged."""
        places = self._places[key]
        self._places[key] = [(*place[:3], dtype) if place[0] == name else place for place in places]

    def _check(self, key: StepKey, observation: Any) -> None:
        space = self.spec.steps[key].observation_space
        check_observation(observation, space, f"the observation of sub-step {key!r}", self._is_exact)

    def step(self, envs: Sequence[int] | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        extras = StepExtras([], [])
        chosen: Iterable[int] = self._all if envs is None else envs
        if self._clock is not None:
            chosen = self._timed(chosen, self._clock)
        if self._plain is None:
            self._step(chosen, extras)
        else:
            self._step_plain(self._plain, chosen, extras)
        self._is_new = self._is_exact
        return extras

    def _timed(self, envs: Iterable[int], clock: StepClock) -> Iterator[int]:
        """Yield the numbers of environments, and record the step of each one in the clock."""
        for n in envs:
            clock.begin(n, self._episode[n])
            yield n
            clock.end()

    def _step(self, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step environments of any kind."""
        staging, envs = self.staging, self.envs
        keys, times = self._next_key, self._env_time
        rewards, env_steps = staging.reward, staging.env_steps
        terminations, truncations = staging.terminated, staging.truncated
        flat, attributes = self._flat, self._attributes
        acts, idle = self._acts, self._n_idle
        is_new = self._is_new
        actions = {key: self._given(key) for key in self._readers}
        n, result = 0, cast(Any, ...)
        try:
            for n in chosen:
                env = envs[n]
                for head, kept in acts[n][keys[n]].items():
                    kept.append(staging.action[keys[n]][head][n].copy())
                result = env.step({head: values[n] for head, values in actions[keys[n]].items()})
                observation, reward, terminated, truncated, _ = result
                if terminated is not False or truncated is not False or type(reward) is not float or is_new:
                    is_usual = type(terminated) in FLAGS and type(truncated) in FLAGS and type(reward) in NUMBERS
                    if not is_usual or terminated or truncated or is_new:
                        check_step(result, env)
                rewards[n] = reward
                terminations[n], truncations[n] = terminated, truncated
                env_time = env.get_env_time()
                env_steps[n] = advanced = env_time - times[n]
                times[n] = env_time
                if not advanced:
                    self._wait(n)
                elif idle[n]:
                    idle[n] = 0
                if not flat:
                    self._order[n].append(self._key_index[keys[n]])
                    staging.actor_done[n] = env.is_actor_done()
                is_over = advanced or terminated or truncated
                if attributes and is_over and (actor_rewards := env.get_actor_rewards()) is not None:
                    extras.actor_rewards.append((n, np.array(actor_rewards, dtype=np.float64)))
                if terminated or truncated:
                    if truncated and not terminated:
                        key, agent_id = env.actor_id()
                        self._check_final(key, observation)
                        extras.finals.append((n, key, agent_id, observation))
                    for summary in env.drain_episode_summaries():
                        self._finish(n, summary)
                    if self._n_standstills is not None:
                        self._look_for_standstill(n)
                    if not self.autoreset:
                        continue
                    self._episode[n] += 1
                    observation = self._reset(n)
                self._observe(n, observation)
        except Exception as error:
            self._explain(n, error, result)
            raise

    def _check_final(self, key: StepKey, observation: Any) -> None:
        """Check the final observation of a truncated episode."""
        if key not in self._key_index:
            raise EnvContractError(f"actor_id() names sub-step {key!r}; declared are {self.spec.step_keys}")
        self._check(key, observation)

    def _wait(self, n: int) -> None:
        """Count an act that did not advance environment time.

        Raises:
            EnvContractError: There were too many such acts in a row.
        """
        self._n_idle[n] += 1
        if self._n_idle[n] > MAX_ACTS_PER_ENV_STEP:
            fault = f"{name_of(self.envs[n])} has made {MAX_ACTS_PER_ENV_STEP} acts without environment time advancing"
            raise EnvContractError(f"{fault}; {_REMEDY}")

    def _look_for_standstill(self, n: int) -> None:
        """Check at the end of an episode if environment time has ever advanced in any environment.

        A single episode may end before its first environment step is complete. Several episodes
        with at least as many acts as there are actors, and without any environment step, mean that
        the environment does not keep time.

        Raises:
            EnvContractError: Environment time never advances.
        """
        if any(now != then for now, then in zip(self._env_time, self._began_at, strict=True)):
            self._n_standstills = None
            return
        n_actors = sum(max(1, step.n_agents) for step in self.spec.steps.values())
        self._n_standstills = (self._n_standstills or 0) + int(self._n_idle[n] >= n_actors)
        if self._n_standstills == _N_STANDSTILLS:
            fault = f"environment time of {name_of(self.envs[n])} did not advance in {_N_STANDSTILLS} episodes"
            raise EnvContractError(f"{fault}, the last one of {self._n_idle[n]} acts; {_REMEDY}")

    def _step_plain(self, plain: PlainGymEnvs, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step the gymnasium environments directly, bypassing conversions and statistics.

        The results are the same.
        """
        staging, steps = self.staging, plain.steps
        all_rewards, all_taken = plain.rewards, plain.taken
        key = self._next_key[0]
        staged_reward = staging.reward
        is_new, is_exact = self._is_new, self._is_exact
        ((name, rows, shape, dtype),) = self._places[key]
        (values,) = self._given(key).values()
        if isinstance(values, list):  # NumPy integers, as in gymnasium's vectors: faster to check
            actions, kept = list(staging.action[key]["action"]), values
        else:
            actions, kept = values, values.copy()  # environments may modify their actions
        staging.terminated.fill(False)
        staging.truncated.fill(False)
        ndarray = np.ndarray
        n, result = 0, cast(Any, ...)
        try:
            for n in chosen:
                result = steps[n](actions[n])
                observation, reward, terminated, truncated, _ = result
                if is_new:
                    plain.check(n, result, is_exact)
                if type(reward) is not float:
                    if type(reward) not in NUMBERS:
                        plain.check(n, result)
                    reward = float(reward)
                staged_reward[n] = reward
                all_rewards[n].append(reward)
                all_taken[n].append(kept[n])
                if terminated is not False or truncated is not False:
                    if type(terminated) not in FLAGS or type(truncated) not in FLAGS:
                        plain.check(n, result)
                    if terminated or truncated:
                        staging.terminated[n], staging.truncated[n] = terminated, truncated
                        if truncated and not terminated:
                            plain.check(n, result)
                            extras.finals.append((n, key, 0, plain.observe(observation)))
                        self._finish(n, plain.summary(n))
                        if self.autoreset:
                            self._episode[n] += 1
                            self._observe(n, self._reset(n))
                        continue
                if type(observation) is not ndarray:
                    observation = np.asarray(observation)
                if observation.shape != shape or observation.dtype is not dtype:
                    plain.check(n, result)
                    dtype = observation.dtype
                    self._accept(key, name, dtype)
                rows[n] = observation
        except Exception as error:
            self._explain(n, error, result)
            raise

    def _given(self, key: StepKey) -> dict[str, Any]:
        """Return head -> [N, ...] staged actions of a sub-step, as environments expect them."""
        staged = self.staging.action[key]
        return {head: read(staged[head]) for head, read in self._readers[key].items()}

    def histories(self) -> list[dict[str, Any]]:
        """Return the input of `replay` for each environment; see `VectorEnv.histories`.

        Long episodes are saved as a state if possible: `state` is restored after `n_before` of the
        acts. Otherwise `why` gives the reason.
        """
        histories = super().histories()
        for n, history in enumerate(histories):
            taken = self._states[n]
            if taken is not None:
                self._complete(n, history, taken)
            if taken is not None or len(history["keys"]) > MOST_REPLAYED_ACTS:
                try:
                    self._shorten(n, history)
                except Exception as error:  # write the checkpoint in any case, with all actions
                    number = self.first_env_index + n
                    reason = str(error) if isinstance(error, StateError) else repr(error)
                    self._refusal = self._refusal or f"the state of environment {number} cannot be taken: {reason}"
                    history["why"] = self._refusal
        return histories

    def _complete(self, n: int, history: dict[str, Any], taken: "_TakenState") -> None:
        """Add the state that was taken in this episode, and the acts since then."""
        history |= {"state": taken.state, "n_before": taken.n_before}
        if self._plain is not None:
            since = np.array(
                self._plain.taken[n][taken.n_taken :],
                self.staging.action[self._next_key[n]]["action"].dtype,
            )
            heads = history["actions"][self._next_key[n]]
            heads["action"] = np.concatenate([heads["action"], since.reshape(-1, *heads["action"].shape[1:])])
            history["keys"] = np.zeros(len(heads["action"]), np.int64)

    def _shorten(self, n: int, history: dict[str, Any]) -> None:
        """Replace all but the first acts of a history by the environment's state.

        Raises:
            StateError: The state cannot be taken; the history is unchanged.
        """
        if self._refusal:
            raise StateError(self._refusal)
        state = self.episode_state(n)
        if not self._is_state_checked:
            copies = [self._copy_of(n), self._copy_of(n)]
            try:
                check_episode(state, copies, history)
            finally:
                for copy in copies:
                    copy.close()
            self._is_state_checked = True
        first = first_acts(history, ACTS_BEFORE_STATE)
        history |= first | {"state": state, "n_before": len(first["keys"])}
        self._order[n] = [] if self._flat else first["keys"].tolist()
        self._acts[n] = mapped(list, first["actions"])
        self._note_state(n, state, len(first["keys"]))

    def _note_state(self, n: int, state: Any, n_before: int) -> None:
        self._states[n] = _TakenState(state, n_before, 0 if self._plain is None else self._plain.trim(n))

    def _copy_of(self, n: int) -> "SequentialVectorEnv":
        """Make a vector with one new environment from the factory of environment n."""
        options: Any = {
            "seed": self.seed,
            "seed_by_env": self._seed_by_env,
            "autoreset": False,
            "spec": self.spec,
        }
        return SequentialVectorEnv([self._factories[n]], first_env_index=self.first_env_index + n, **options)

    def episode_state(self, n: int) -> Any:
        """Return the state of an environment in mid-episode: arrays, primitives and lists of them.

        Raises:
            StateError: The state cannot be taken.
        """
        return take_episode(self.envs[n], self._beside(n))

    def _beside(self, n: int) -> dict[str, Any]:
        """Return this vector's bookkeeping data on an environment's episode."""
        staging = self.staging
        staged = staging.observation[self._next_key[n]]
        known = {
            "times": [self._env_time[n], self._began_at[n], self._n_idle[n]],
            "next": [int(staging.next_key[n]), int(staging.next_agent[n])],
            "observation": {name: rows[n].copy() for name, rows in staged.items()},
        }
        if self._plain is not None:
            known["statistics"] = self._plain.episode_state(n)
        return known

    def _give_state(self, n: int, state: Any, n_before: int) -> None:
        """Restore a saved state of an environment."""
        try:
            known = give_episode(self.envs[n], self._beside(n), state)
        except StateError as error:
            fault = f"environment {self.first_env_index + n} cannot take the state that was saved: {error}"
            remedy = "resume with the code that saved it, or start again from its weights: --warm-start"
            raise ValueError(f"{fault}; {remedy}") from error
        self.envs[n].context.is_logged = False
        self._env_time[n], self._began_at[n], self._n_idle[n] = known["times"]
        staging, (key, agent) = self.staging, known["next"]
        staging.next_key[n], staging.next_agent[n] = key, agent
        self._next_key[n] = self.spec.step_keys[key]
        for name, rows in staging.observation[self._next_key[n]].items():
            rows[n] = known["observation"][name]
        if self._plain is not None:
            self._plain.load_episode_state(n, known["statistics"])
        self._note_state(n, state, n_before)

    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Replay episodes and restore saved states; see `VectorEnv.replay`.

        Raises:
            ValueError: An environment cannot restore its saved state.
        """
        step_keys = self.spec.step_keys
        autoreset, self.autoreset = self.autoreset, False
        for n, (history, states) in enumerate(zip(histories, wrapper_states, strict=True)):
            self._episode[n], self.envs[n].context.is_logged = history["episode"], False
            self._begin(n)
            taken, keys = dict.fromkeys(step_keys, 0), history["keys"].tolist()
            given_after = history.get("n_before")
            for place, index in enumerate(keys):
                if place == given_after:
                    self._give_state(n, history["state"], place)
                key = step_keys[index]
                for head, values in history["actions"][key].items():
                    self.staging.action[key][head][n] = values[taken[key]]
                taken[key] += 1
                self.step([n])
                if self.staging.terminated[n] or self.staging.truncated[n]:  # the caller notices
                    self._summaries.clear()
                    self._begin(n)
                    break
            else:
                if given_after == len(keys):
                    self._give_state(n, history["state"], len(keys))
            self.envs[n].context.is_logged = True
            for name, wrapper in self._stacks[n].items():
                if name in states:
                    wrapper.load_state_dict(states[name])
        self.autoreset = autoreset

    def of_each(self, function: Callable[[LogStatsWrapper], T], envs: Sequence[int] | None = None) -> list[T]:
        """Call a function with environments, in the process that they live in; return its results.

        Args:
            function: Function of one environment.
            envs: Numbers of the environments, all if None.
        """
        chosen = self._all if envs is None else envs
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
        stack, known = self._stacks[0], known or {}
        for name, state in known.items():
            stack[name].load_shared_state(state)
        env: Wrapper = self.envs[0]
        env.context.is_logged = False
        if self._clock is not None:
            env = TimedWrapper(env, self._clock)
        for name, wrapper in reversed(stack.items()):  # inner first, as outer ones see their output
            if name not in known:
                wrapper.estimate_within(env, n_samples, seed)
        self.envs[0].context.is_logged = True
        return shared_states_of(stack)

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()


def _reader(space: spaces.Space[Any]) -> Callable[[Array], Any]:
    """Return a function that reads the staged actions of a head.

    It converts integers to Python's `int` and clips the values of a bounded Box.
    """
    if isinstance(space, spaces.Discrete):
        return np.ndarray.tolist
    if isinstance(space, spaces.Box) and (space.bounded_below.any() or space.bounded_above.any()):
        return lambda staged: np.clip(staged, space.low, space.high)
    return np.ndarray.copy
