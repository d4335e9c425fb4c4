"""Vector environment that steps its environments one after the other in this process.

Plain gymnasium environments are stepped without the layers around them.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.core.state_rules import StateError
from maze_pl.envs.attribution import attributes_rewards, ends_actors
from maze_pl.envs.contract import FLAGS, NO_RESULT, NUMBERS, EnvContractError, check_reset, check_step, explain_step
from maze_pl.envs.reward_watch import N_WATCHED, RewardWatch, UnattributedRewardWarning, reward_watch
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.env_time import EnvTimes
from maze_pl.envs.vector.episode_seeding import EpisodeSeeding
from maze_pl.envs.vector.episode_state import give_episode, take_episode
from maze_pl.envs.vector.local_vector_env import LocalVectorEnv
from maze_pl.envs.vector.long_episodes import LongEpisodes
from maze_pl.envs.vector.next_observations import NextObservations
from maze_pl.envs.vector.plain_gym_envs import PlainGymEnvs
from maze_pl.envs.vector.staged_actions import StagedActions
from maze_pl.envs.vector.step_clock import StepClock
from maze_pl.envs.vector.vector_env import (
    AttributedRewards,
    FinalGroup,
    MakeEnv,
    Numbers,
    Staging,
    StepExtras,
    listed,
)


class SequentialVectorEnv(LocalVectorEnv):
    """Steps its environments in a loop; the fastest choice for cheap environments.

    Args:
        env_factories: One callable without arguments for each environment.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        spec: Observation and action spaces of the agents; read from the first environment if None.
        autoreset: Whether the step that ends an episode also starts the next one.
        seed_by_env: Whether episodes of the same index differ between environments.
        n_same_starts: Number of consecutive environments whose episodes of the same index have the same seed.
        episode_seeds: Seeds of the episodes by their index, in place of those that follow from `seed`.
        staging: Arrays to use, for example in shared memory.
        clock: Records the running step or reset, so that another process can end this one if an
            environment hangs.
        check: Check of every step's results. `fast` requires observations with the shape of their
            space, numeric observations and rewards, and boolean flags; integers must fit the dtype
            of their space. `full` checks the whole contract: also that values lie within bounds,
            that their dtype is of the kind of their space, and that there are no surplus entries.

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
        n_same_starts: int = 1,
        episode_seeds: Sequence[int] | None = None,
        staging: Staging | None = None,
        clock: StepClock | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        if not env_factories:
            raise ValueError("a vector environment needs at least one environment factory")
        if check not in ("fast", "full"):
            raise ValueError(f"check={check!r} must be 'fast' or 'full'")
        super().__init__(env_factories, spec, seed, first_env_index, staging, clock)
        self.autoreset = autoreset
        self._seeding = EpisodeSeeding(seed, seed_by_env, n_same_starts, episode_seeds)
        self._flat = self.spec.is_flat
        self._all = range(self.n_envs)
        self._attributes = any(map(attributes_rewards, self.envs))
        self._ends_actors = not self._flat and any(map(ends_actors, self.envs))
        self._watch: RewardWatch | None = None
        if self._attributes and first_env_index == 0:
            self._watch = reward_watch(self.envs[0], N_WATCHED)
        self._is_exact = check == "full"
        self._next = NextObservations(self.spec, self.envs, self.staging, self._is_exact)
        self._time = EnvTimes(self.spec, self.n_envs)
        self._factories = list(env_factories)
        self.always_advances = self._flat and PlainGymEnvs.are_plain(self.envs)
        self._plain = PlainGymEnvs(self.envs) if self.always_advances else None
        self._long = LongEpisodes(self.n_envs, first_env_index, self._plain)
        self.staging.env_steps.fill(self.always_advances)
        self._staged_actions = StagedActions(self.spec, self.staging)

    def reset(self, envs: Numbers | None = None, episodes: Numbers | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        for position, n in enumerate(self._all if envs is None else listed(envs)):
            self._episodes.numbers[n] = int(episodes[position]) if episodes is not None else 0
            self._begin(n)

    def _begin(self, n: int) -> None:
        """Start an episode and stage its first observation."""
        try:
            self._next.stage(n, self._reset(n))
        except Exception as error:
            self._explain(n, error, NO_RESULT)
            raise

    def _reset(self, n: int) -> dict[str, Any]:
        seed = self._seeding.seed_of(self.first_env_index + n, self._episodes.numbers[n])
        self._starts.note(n)
        if self._clock is not None:
            self._clock.begin(n, self._episodes.numbers[n], is_reset=True)
        result: Any = self.envs[n].reset(seed=seed)
        if self._clock is not None:
            self._clock.end()
        if self._is_exact:
            check_reset(result, self.envs[n])
        observation: dict[str, Any] = result[0]
        self._time.begin(n, self.envs[n].get_env_time())
        self._episodes.begin(n)
        self._long.forget(n)
        if self._plain is not None:
            self._plain.begin(n, self._episodes.acts[n][self._next.keys[n]]["action"])
        return observation

    def _explain(self, n: int, error: Exception, result: Any) -> None:
        """Raise an error with the environment's number if it broke its contract.

        Args:
            n: Number of the environment that was being stepped or reset.
            error: The exception.
            result: Result of its step, `NO_RESULT` if there is none.
        """
        try:
            if isinstance(error, EnvContractError):
                raise error
            plain, trace = self._plain, error.__traceback__
            explain_step(error, result, self.envs[n] if plain is None else plain.envs[n])
            if plain is not None and result is not NO_RESULT and trace is not None and trace.tb_next is None:
                plain.check(n, result)
        except EnvContractError as told:
            raise EnvContractError(f"environment {self.first_env_index + n}: {told}") from error

    def step(self, envs: Numbers | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        extras = StepExtras([])
        chosen: Iterable[int] = self._all if envs is None else listed(envs)
        if self._clock is not None:
            chosen = self._clock.timed(chosen, self._episodes.numbers)
        if self._plain is None:
            self._step(chosen, extras)
        else:
            self._step_plain(self._plain, chosen, extras)
        self._next.is_new = self._is_exact
        return extras

    def _step(self, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step environments of any kind."""
        staging, envs = self.staging, self.envs
        keys, key_index = self._next.keys, self._next.key_index
        times, idle = self._time.now, self._time.n_idle
        rewards, env_steps = staging.reward, staging.env_steps
        sums = self._episodes.rewards
        terminations, truncations = staging.terminated, staging.truncated
        flat, attributes = self._flat, self._attributes
        asks_for_ends = self._ends_actors
        acts, is_new = self._episodes.acts, self._next.is_new
        attributed: dict[int, Array] = {}
        observe = self._next.stage
        actions = {key: self._staged_actions.of(key) for key in self.spec.step_keys}
        if self._watch is not None and self._watch.is_done:
            self._watch = None
        watch = self._watch
        n, result = 0, NO_RESULT
        try:
            for n in chosen:
                env = envs[n]
                for head, kept in acts[n][keys[n]].items():
                    kept.append(staging.action[keys[n]][head][n].copy())
                action = {head: values[n] for head, values in actions[keys[n]].items()}
                result = env.step(action) if watch is None or n > 0 else watch.step(action)
                observation, reward, terminated, truncated, _ = result
                if terminated is not False or truncated is not False or type(reward) is not float or is_new:
                    is_usual = type(terminated) in FLAGS and type(truncated) in FLAGS and type(reward) in NUMBERS
                    if not is_usual or terminated or truncated or is_new:
                        check_step(result, env)
                number = float(reward)
                rewards[n] = number
                sums[n] += number if number > 0.0 else -2.0 * number  # see RunningEpisodes
                terminations[n], truncations[n] = terminated, truncated
                env_time = env.get_env_time()
                env_steps[n] = advanced = env_time - times[n]
                times[n] = env_time
                if not advanced:
                    self._time.wait(n, env)
                elif idle[n]:
                    idle[n] = 0
                if not flat:
                    self._episodes.order[n].append(key_index[keys[n]])
                    staging.actor_done[n] = env.is_actor_done()
                is_over = advanced or terminated or truncated
                if attributes and is_over and (actor_rewards := env.get_actor_rewards()) is not None:
                    attributed[n] = np.array(actor_rewards, dtype=np.float64)
                    if watch is not None and n == 0 and (fault := watch.end_step()) is not None:
                        warnings.warn(fault, UnattributedRewardWarning, stacklevel=2)
                if asks_for_ends and is_over and (done := env.get_done_actors()):
                    extras.done_actors[n] = done
                if terminated or truncated:
                    if not terminated:
                        self._keep_final(n, observation, extras)
                    self._finish_episode(n)
                    if not self.autoreset:
                        continue
                    self._episodes.numbers[n] += 1
                    observation = self._reset(n)
                observe(n, observation)
        except Exception as error:
            self._explain(n, error, result)
            raise
        extras.actor_rewards = AttributedRewards.joined(attributed) if attributed else None

    def _keep_final(self, n: int, observation: dict[str, Any], extras: StepExtras) -> None:
        """Keep the final observation of environment n, whose episode was truncated."""
        key, agent_id = self.envs[n].actor_id()
        self._next.check_final(key, agent_id, observation)
        extras.finals.append(self._final(n, key, agent_id, observation))

    def _finish_episode(self, n: int) -> None:
        """Take the summaries of the episode of environment n that has ended, and its time."""
        for summary in self.envs[n].drain_episode_summaries():
            self._episodes.finish(n, summary)
        self._time.end(n, self.envs[n])

    def _final(self, n: int, key: StepKey, agent_id: int, observation: dict[str, Any]) -> FinalGroup:
        """Final observation of environment n."""
        arrays = {}
        for name, staged in self.staging.observation[key].items():
            arrays[name] = np.array(observation[name], staged.dtype)[None]  # a copy: the reset may overwrite it
        return FinalGroup(np.array([n]), key, np.array([agent_id]), arrays)

    def _step_plain(self, plain: PlainGymEnvs, chosen: Iterable[int], extras: StepExtras) -> None:
        """Step the gymnasium environments directly, without the layers around them; the results are the same."""
        staging, steps = self.staging, plain.steps
        all_rewards, all_taken = plain.rewards, plain.taken
        key = self._next.keys[0]
        staged_reward, sums = staging.reward, self._episodes.rewards
        is_new, is_exact = self._next.is_new, self._is_exact
        ((name, rows, shape, dtype),) = self._next.places[key]
        (values,) = self._staged_actions.of(key).values()
        if isinstance(values, list):  # NumPy integers, as in gymnasium's vectors: faster to check
            actions, kept = list(staging.action[key]["action"]), values
        else:
            actions, kept = values, values.copy()  # environments may modify their actions
        staging.terminated.fill(False)
        staging.truncated.fill(False)
        ndarray = np.ndarray
        n, result = 0, NO_RESULT
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
                sums[n] += reward if reward > 0.0 else -2.0 * reward  # see RunningEpisodes
                all_rewards[n].append(reward)
                all_taken[n].append(kept[n])
                if terminated is not False or truncated is not False:
                    if type(terminated) not in FLAGS or type(truncated) not in FLAGS:
                        plain.check(n, result)
                    if terminated or truncated:
                        staging.terminated[n], staging.truncated[n] = terminated, truncated
                        if truncated and not terminated:
                            plain.check(n, result)
                            extras.finals.append(self._final(n, key, 0, plain.observe(observation)))
                        self._episodes.finish(n, plain.summary(n))
                        if self.autoreset:
                            self._episodes.numbers[n] += 1
                            self._next.stage(n, self._reset(n))
                        continue
                if type(observation) is not ndarray:
                    observation = np.asarray(observation)
                if observation.shape != shape or observation.dtype is not dtype:
                    plain.check(n, result)
                    dtype = self._next.accept(key, name, observation.dtype)
                rows[n] = observation
        except Exception as error:
            self._explain(n, error, result)
            raise

    def histories(self) -> list[dict[str, Any]]:
        """Return the input of `replay` for each environment; see `ReplayedVectorEnv.histories`.

        Long episodes are saved as a state if possible: `state` is restored after `n_before` of the
        acts. Otherwise `why` gives the reason.
        """
        histories = self._episodes.histories()
        for n, history in enumerate(histories):
            if states := self._starts.of_running(n):
                history["wrappers"] = states
            first = self._long.shorten(n, history, self.episode_state, self._copy_of)
            if first is not None:
                self._episodes.shorten(n, first)
        return histories

    def _copy_of(self, n: int) -> "SequentialVectorEnv":
        """Make a vector with one new environment from the factory of environment n."""
        options: Any = {"autoreset": False, "spec": self.spec, **vars(self._seeding)}
        return SequentialVectorEnv([self._factories[n]], first_env_index=self.first_env_index + n, **options)

    def episode_state(self, n: int) -> Any:
        """Return the state of an environment in mid-episode: arrays, primitives and lists of them.

        Raises:
            StateError: The state cannot be taken.
        """
        return take_episode(self.envs[n], self._bookkeeping(n))

    def _bookkeeping(self, n: int) -> dict[str, Any]:
        """Return this vector's bookkeeping data on an environment's episode."""
        staging = self.staging
        staged = staging.observation[self._next.keys[n]]
        known = {
            "times": [self._time.now[n], self._time.began_at[n], self._time.n_idle[n]],
            "next": [int(staging.next_key[n]), int(staging.next_agent[n])],
            "observation": {name: rows[n].copy() for name, rows in staged.items()},
        }
        if self._plain is not None:
            known["statistics"] = self._plain.episode_state(n)
        return known

    def _give_state(self, n: int, state: Any, n_before: int) -> None:
        """Restore a saved state of an environment."""
        try:
            known = give_episode(self.envs[n], self._bookkeeping(n), state)
        except StateError as error:
            fault = f"environment {self.first_env_index + n} cannot restore its saved state: {error}"
            remedy = "resume with the code that saved it, or start a new run from its weights with --warm-start"
            raise ValueError(f"{fault}; {remedy}") from error
        self.envs[n].context.is_logged = False
        self._time.now[n], self._time.began_at[n], self._time.n_idle[n] = known["times"]
        place, agent_id = known["next"]
        self._next.restore(n, place, agent_id, known["observation"])
        if self._plain is not None:
            self._plain.load_episode_state(n, known["statistics"])
        self._long.note(n, state, n_before)
        self._episodes.rewards[n] = 0.0

    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Replay episodes and restore saved states; see `ReplayedVectorEnv.replay`.

        Raises:
            ValueError: An environment cannot restore its saved state.
        """
        autoreset, self.autoreset = self.autoreset, False
        for n, (history, states) in enumerate(zip(histories, wrapper_states, strict=True)):
            self._episodes.numbers[n] = history["episode"]
            self.envs[n].context.is_logged = False
            self._starts.load(n, history.get("wrappers", {}))  # earlier versions saved none
            self._begin(n)
            self._repeat_acts(n, history)
            self.envs[n].context.is_logged = True
            for name, wrapper in self._stacks[n].items():
                if name in states:
                    wrapper.load_state_dict(states[name])
        self.autoreset = autoreset

    def _repeat_acts(self, n: int, history: dict[str, Any]) -> None:
        """Repeat the saved acts of an episode; if one ends it, begin again, which the caller notices."""
        n_repeated = dict.fromkeys(self.spec.step_keys, 0)
        for place, index in enumerate(history["keys"].tolist()):
            if place == history.get("n_before"):
                self._give_state(n, history["state"], place)
            key = self.spec.step_keys[index]
            for head, values in history["actions"][key].items():
                self.staging.action[key][head][n] = values[n_repeated[key]]
            n_repeated[key] += 1
            self.step([n])
            if self.staging.terminated[n] or self.staging.truncated[n]:
                self._episodes.summaries.clear()
                self._begin(n)
                return
        if history.get("n_before") == len(history["keys"]):
            self._give_state(n, history["state"], len(history["keys"]))
