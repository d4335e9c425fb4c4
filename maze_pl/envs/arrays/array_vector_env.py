"""Vector environment around an array environment: no loop over environments anywhere."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode_batch import EpisodeBatch
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import ArrayChecks, as_numpy
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_reward_watch import ArrayRewardWatch
from maze_pl.envs.arrays.array_statistics import ArrayStatistics
from maze_pl.envs.arrays.array_step import ArrayStep
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper, allocate
from maze_pl.envs.arrays.array_wrapper_statistics import (
    FirstWrapperStates,
    array_states_of,
    load_array_states,
    load_shared_states,
    shared_states_of,
)
from maze_pl.envs.arrays.episode_seeds import EpisodeSeeds
from maze_pl.envs.arrays.first_observations import FirstObservations
from maze_pl.envs.arrays.unsaved_state import UnsavedState
from maze_pl.envs.reward_watch import UnattributedRewardWarning
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import (
    AttributedRewards,
    FinalGroup,
    Numbers,
    Staging,
    StepExtras,
    VectorEnv,
)


class ArrayVectorEnv(VectorEnv):
    """Steps the environments of an `ArrayEnv`, starts their next episodes, and keeps their statistics.

    Seeds, statistics and summaries equal those of a `SequentialVectorEnv` of the same problem. Its
    state is that of the arrays, so that resuming replays nothing.

    Args:
        make_env: Makes the array environment; it is allocated here.
        n_envs: Number of environments.
        seed: The run's seed.
        first_env_index: Index of the first environment across all ranks and workers.
        spec: Observation and action spaces of the agents; read from the environment if None.
        autoreset: Whether the step that ends an episode also starts the next one.
        seed_by_env: Whether episodes of the same index differ between environments.
        n_same_starts: Number of consecutive environments whose episodes of the same index have the same seed.
        staging: Arrays to use, for example in shared memory.
        check: `fast` checks shapes and types of each result; `full` also whether observations lie within
            their spaces and none is additional, which `fast` does for the first ones only.

    Attributes:
        env: The array environment.

    Raises:
        ValueError: `n_envs` is below 1, or `check` is unknown.
        TypeError: `make_env` does not make an array environment.
    """

    def __init__(
        self,
        make_env: Callable[[], ArrayEnv],
        n_envs: int,
        *,
        seed: int = 0,
        first_env_index: int = 0,
        spec: Spec | None = None,
        autoreset: bool = True,
        seed_by_env: bool = True,
        n_same_starts: int = 1,
        staging: Staging | None = None,
        check: Literal["fast", "full"] = "fast",
    ) -> None:
        if n_envs < 1:
            raise ValueError(f"n_envs={n_envs} must be at least 1")
        if check not in ("fast", "full"):
            raise ValueError(f"check={check!r} must be 'fast' or 'full'")
        self.env = make_env()
        if not isinstance(self.env, ArrayEnv):
            raise TypeError(f"the environment factory returned {self.env!r}, which is not an ArrayEnv")
        self.env.unwrapped.first_env_index = first_env_index
        self.env.note_given_arrays()
        allocate(self.env, n_envs)
        self._unsaved = UnsavedState(self.env)
        super().__init__(spec or Spec.of(self.env), n_envs, seed, first_env_index, staging)
        self._autoreset = autoreset
        index = np.zeros(n_envs, np.int64)
        if seed_by_env:
            index = (first_env_index + np.arange(n_envs)) // n_same_starts
        self._seeds = EpisodeSeeds(seed, index)
        self._keys = self.spec.step_keys
        self._is_flat = self.spec.is_flat
        self._checks = ArrayChecks(
            self.spec, n_envs, first_env_index, type(self.env.unwrapped).__name__, check == "full"
        )
        self._first_observations: FirstObservations | None = None
        self._reward_watch: ArrayRewardWatch | None = None
        if isinstance(self.env, ArrayWrapper):
            self.env.check_unwrapped(self._checks)
            if first_env_index == 0:
                self._reward_watch = ArrayRewardWatch(self.env)
        elif check == "fast":
            self._first_observations = FirstObservations(self.env)
        self._statistics = ArrayStatistics(self.spec, n_envs, first_env_index)
        self._env_time = np.zeros(n_envs, np.int64)
        self._n_acts = np.zeros(n_envs, np.int64)  # in the running environment steps
        self._bounds = {key: _bounds(step.action_space) for key, step in self.spec.steps.items()}
        self._drained: list[EpisodeBatch] = []
        self._first_states: FirstWrapperStates | None = None
        self.waiting = np.zeros(n_envs, np.bool_) if self.env.unwrapped.starts_late and autoreset else None

    def reset(self, envs: Numbers | None = None, episodes: Numbers | None = None) -> None:
        """Start new episodes; see `VectorEnv.reset`."""
        which = np.arange(self.n_envs) if envs is None else np.asarray(envs, np.int64)
        numbers = np.zeros(len(which), np.int64) if episodes is None else np.asarray(episodes, np.int64)
        if not len(which):
            return
        order = np.argsort(which)
        which = which[order]
        self._statistics.drop_running(which)
        self._n_acts[which] = 0
        if self.waiting is not None:
            self.waiting[which] = False
        self._statistics.episode[which] = numbers[order]
        self._begin(which)
        self._unsaved.note_first("reset")

    def _begin(self, which: Array) -> None:
        """Start the next episodes of environments, and stage their first observations."""
        seeds = self._seeds.of(which, self._statistics.episode[which])
        result = self.env.reset(which, seeds)
        self._checks.check_reset(result, which)
        self._statistics.receive(self.env.array_events.drain())
        self._env_time[which] = 0 if result.env_time is None else as_numpy(result.env_time)[which]
        self._stage_observations(result, which)

    def _begin_late(self, late: Array) -> None:
        """Start the next episodes of environments that waited for a step; if no episode is running, those of all."""
        assert self.waiting is not None
        self.waiting[late] = False
        if np.count_nonzero(self.waiting) + len(late) == self.n_envs:
            self.waiting[:] = False
            late = np.arange(self.n_envs)
        self._begin(late)

    def step(self, envs: Numbers | None = None) -> StepExtras:
        """Perform the staged actions; see `VectorEnv.step`."""
        which: Array | slice = slice(None) if envs is None or len(envs) == self.n_envs else np.asarray(envs, np.int64)
        late: Array | None = None
        if self.waiting is not None and self.waiting.any():
            (late,) = np.nonzero(self.waiting)
            which = np.arange(self.n_envs)[which]
            which = which[~self.waiting[which]]
        result = self.env.step(self._actions(which), which)
        self._checks.check_step(result, which)
        if self._reward_watch is not None:
            self._watch_rewards(self._reward_watch, result, which)
        staging = self.staging
        reward = as_numpy(result.reward)
        staging.reward[which] = reward[which]
        staging.terminated[which] = False if result.terminated is None else as_numpy(result.terminated)[which]
        staging.truncated[which] = False if result.truncated is None else as_numpy(result.truncated)[which]
        ends: Array = (staging.terminated | staging.truncated)[which]
        advanced = self._advance(result, which, ends)
        if not self._is_flat:
            staging.actor_done[which] = False if result.actor_done is None else as_numpy(result.actor_done)[which]
        self._statistics.receive(self.env.array_events.drain())
        self._statistics.note_rewards(which, self._env_reward(result), advanced)
        self._stage_observations(result, which)
        self._n_acts[which] += 1
        extras = StepExtras([], self._actor_rewards(result, which, ends))
        if ends.any():
            ended = np.flatnonzero(ends)
            self._end_episodes(ended if isinstance(which, slice) else which[ended], extras)
        if late is not None:
            self._begin_late(late)
        self._unsaved.note_first("step")
        return extras

    def _env_reward(self, result: ArrayStep) -> Array:
        """Rewards [N] as the environment gave them, before wrappers changed them."""
        is_same = result.env_reward is None or result.env_reward is result.reward
        return self.staging.reward if is_same else as_numpy(result.env_reward)

    def _watch_rewards(self, watch: ArrayRewardWatch, result: ArrayStep, which: Array | slice) -> None:
        """Warn of a wrapper that changes rewards, but not those of single actors."""
        fault = watch.end_step(result, which)
        if fault is not None:
            warnings.warn(fault, UnattributedRewardWarning, stacklevel=3)
        if watch.is_done:
            self._reward_watch = None

    def _actions(self, which: Array | slice) -> dict[StepKey, dict[str, Array]]:
        """Staged actions, within their bounds; the actions of the environments are recorded."""
        actions: dict[StepKey, dict[str, Array]] = {}
        for place, key in enumerate(self._keys):
            heads = actions[key] = dict(self.staging.action[key])
            for head, (low, high) in self._bounds[key].items():
                heads[head] = np.clip(heads[head], low, high)
            acting = which
            if len(self._keys) > 1:
                numbers = np.arange(self.n_envs)[which]
                acting = numbers[self.staging.next_key[numbers] == place]
                if not len(acting):
                    continue
            self._statistics.note_actions(key, acting, heads)
        return actions

    def _advance(self, result: ArrayStep, which: Array | slice, ends: Array) -> Array | None:
        """Stage how far environment time advanced; None if each act completes an environment step."""
        if result.env_time is None:
            if not self.always_advances:
                self._checks.require_flat(self._is_flat)
                self.always_advances = True
                self.staging.env_steps.fill(1)
            self._env_time[which] += 1
            return None
        env_time = as_numpy(result.env_time)[which]
        steps = env_time - self._env_time[which]
        self.staging.env_steps[which] = steps
        self._env_time[which] = env_time
        self._checks.check_time(steps, which, ends)
        return self.staging.env_steps

    def _stage_observations(self, result: ArrayStep, which: Array | slice) -> None:
        """Copy the observations of the next actors."""
        staging = self.staging
        if not self._is_flat or result.next_key is not None or result.next_agent is not None:
            staging.next_key[which] = 0 if result.next_key is None else as_numpy(result.next_key)[which]
            staging.next_agent[which] = 0 if result.next_agent is None else as_numpy(result.next_agent)[which]
            self._checks.check_next(staging.next_key, staging.next_agent, which)
        if self._first_observations is not None:
            self._first_observations.check(result, which)
            if self._first_observations.is_done:
                self._first_observations = None
        for place, key in enumerate(self._keys):
            observing = which
            if len(self._keys) > 1:
                numbers = np.arange(self.n_envs)[which]
                observing = numbers[staging.next_key[numbers] == place]
                if not len(observing):
                    continue
            observation = self._checks.observation_of(result, key, observing)
            for name, rows in staging.observation[key].items():
                rows[observing] = observation[name][observing]

    def _actor_rewards(self, result: ArrayStep, which: Array | slice, ends: Array) -> AttributedRewards | None:
        """Rewards of the acts of environment steps that have ended."""
        if result.actor_rewards is None:
            return None
        completes = ends | (self.staging.env_steps[which] > 0)
        finished = np.arange(self.n_envs)[which][completes]
        rewards = np.asarray(as_numpy(result.actor_rewards)[finished], np.float64)
        n_acts = np.minimum(self._n_acts[finished], rewards.shape[1])
        self._checks.check_env_actor_rewards(result, finished, n_acts)
        self._n_acts[finished] = 0
        return AttributedRewards(finished, rewards, n_acts) if len(finished) else None

    def _end_episodes(self, ended: Array, extras: StepExtras) -> None:
        """Sum up episodes, keep the final observations of truncated ones, and start the next ones."""
        staging = self.staging
        is_truncated = staging.truncated[ended]
        if is_truncated.any():
            truncated = ended[is_truncated & ~staging.terminated[ended]]
            for place, key in enumerate(self._keys):
                group = truncated[staging.next_key[truncated] == place]
                if len(group):
                    observation = {name: rows[group] for name, rows in staging.observation[key].items()}
                    extras.finals.append(FinalGroup(group, key, staging.next_agent[group], observation))
        kpis = self._checks.check_kpis(self.env.kpis(ended), ended, self.env.kpi_names)
        has_advanced = None if self.always_advances else staging.env_steps[ended] > 0
        further = self.env.end_episodes(ended)
        self._statistics.end_episodes(ended, self._env_time[ended], kpis, has_advanced, further)
        self._env_time[ended] = 0
        if self._autoreset:
            self._statistics.episode[ended] += 1
            if self.waiting is not None and len(ended) < self.n_envs:
                self.waiting[ended] = True
            else:
                self._begin(ended)

    def drain_summaries(self) -> EpisodeBatch:
        """Return summaries of episodes that ended; see `VectorEnv.drain_summaries`."""
        drained = [*self._drained, self._statistics.drain(self.env.array_events.topics)]
        self._drained = []
        return drained[0] if len(drained) == 1 else EpisodeBatch.concatenated(drained)

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics of wrappers; see `VectorEnv.shared_states`."""
        return shared_states_of(self.env)

    def load_shared_states(self, state: dict[str, Any], freeze: bool = False) -> None:
        """Load statistics into the wrappers; see `VectorEnv.load_shared_states`."""
        load_shared_states(self.env, state, freeze)

    def reset_wrappers(self) -> None:
        """Bring all wrappers back to their state at the first call; see `VectorEnv.reset_wrappers`."""
        if self._first_states is None:
            self._first_states = FirstWrapperStates(self.env)
        else:
            self._first_states.load()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the arrays, of the statistics, and of the next actors' observations.

        Raises:
            EnvContractError: At the first call, something has changed that the state does not hold.
        """
        self._unsaved.check_checkpoint()
        self._drained.append(self._statistics.drain(self.env.array_events.topics))
        staging = self.staging
        return {
            "episodes": self._statistics.episode.copy(),
            **_copied(array_states_of(self.env)),
            "env_time": self._env_time.copy(),
            "n_acts": self._n_acts.copy(),
            "statistics": self._statistics.state_dict(),
            "ended": EpisodeBatch.concatenated(self._drained).to_dict(),
            "next_key": staging.next_key.copy(),
            "next_agent": staging.next_agent.copy(),
            "staged": _copied(staging.observation),
            # for environments that start late and save their state, unlike gymnasium's vector environments
            "waiting": None if self.waiting is None else self.waiting.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the result of `state_dict`.

        Returns:
            All environments if their state cannot be saved, otherwise none.

        Raises:
            ValueError: The state is that of other arrays.
        """
        if "array_env" not in state:
            raise ValueError(
                "the checkpoint holds acts of single environments, not the state of an array environment;"
                " start a new run from its weights with --warm-start"
            )
        load_array_states(self.env, state)
        self._env_time[...] = state["env_time"]
        self._n_acts[...] = state["n_acts"]
        self._statistics.load_state_dict(state["statistics"], self.env.array_events.topics)
        self._statistics.episode[...] = state["episodes"]
        self._drained = [EpisodeBatch.from_dict(state["ended"])]
        staging = self.staging
        staging.next_key[...] = state["next_key"]
        staging.next_agent[...] = state["next_agent"]
        for key, tree in staging.observation.items():
            for name, rows in tree.items():
                rows[...] = state["staged"][key][name]
        waiting = state.get("waiting")  # earlier versions saved none
        if self.waiting is not None:
            self.waiting[...] = False if waiting is None else waiting
        if self.env.unwrapped.saves_state:
            return []
        self.reset(episodes=self._statistics.episode + 1)
        return list(range(self.n_envs))

    def close(self) -> None:
        """Close the array environment."""
        self.env.close()


def _bounds(space: spaces.Dict) -> dict[str, tuple[Array, Array]]:
    """Bounds of the heads that have any."""
    bounds = {}
    for head, part in space.spaces.items():
        if isinstance(part, spaces.Box) and (part.bounded_below.any() or part.bounded_above.any()):
            bounds[head] = (part.low, part.high)
    return bounds


def _copied(state: Any) -> Any:
    """Copy the state of an environment; tensors and NumPy's numbers become arrays."""
    if isinstance(state, Mapping):
        return {name: _copied(part) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return [_copied(part) for part in state]
    if isinstance(state, np.ndarray | np.number | np.bool_) or hasattr(state, "detach"):
        return as_numpy(state).copy()
    return copy.deepcopy(state)
