"""Checks of what array environments return."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_step import ArrayStep
from maze_pl.envs.contract import MAX_ACTS_PER_ENV_STEP, EnvContractError, describe
from maze_pl.envs.structured_env import Array
from maze_pl.events.topics import StatisticsError

_N_STANDSTILLS = 3  # episodes without an environment step: more than chance
_ADVANCE = "raise env_time in the act that completes an environment step"


def as_numpy(array: Any) -> Array:
    """Return an array as it is, and a tensor as an array, copied from its device if necessary."""
    if type(array) is np.ndarray:
        return array
    if not hasattr(array, "detach"):
        return np.asarray(array)
    converted: Array = array.detach().cpu().numpy()
    return converted


def refuse_infinite_kpi(name: str, values: Array, envs: Array) -> None:
    """Raise StatisticsError if a KPI [n] of ended episodes is infinite.

    Args:
        name: The KPI.
        values: [n] its values.
        envs: [n] numbers of the environments, for the message.
    """
    is_infinite = np.isinf(values)
    if is_infinite.any():
        n = int(envs[is_infinite][0])
        raise StatisticsError(f"KPI {name!r} of environment {n} is infinite; return NaN where it has no value")


def slots_for_checks(env: Any) -> dict[StepKey, int]:
    """Return slots for the sub-steps whose number of agents changes; any number, as the spec is for checks only."""
    return {key: 1 for key, count in env.agent_counts_dict.items() if count < 0}


class MissingKpiWarning(UserWarning):
    """An array environment declares a KPI that it does not compute."""


class ArrayChecks:
    """Checks of the results of an array environment.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.
        first_env_index: Number of the first environment, for messages.
        name: Name of the environment, for messages.
        is_full: Whether observations must lie within their spaces, and none may be additional.
    """

    def __init__(self, spec: Spec, n_envs: int, first_env_index: int, name: str, is_full: bool) -> None:
        self._spec = spec
        self._n_envs = n_envs
        self._shape = (n_envs,)
        self._first_env_index = first_env_index
        self._name = name
        self._is_full = is_full
        self._n_idle = np.zeros(n_envs, np.int64)
        self._n_standstills: int | None = 0
        self._has_kpis = False  # whether KPIs were checked before
        self._timed_reset = False  # whether a reset has returned env_time
        self._timed_steps: bool | None = None  # whether steps return env_time; None before the first one
        self._n_actors = sum(max(1, step.n_agents) for step in spec.steps.values())
        limits = [step.n_agents if step.n_agents > 0 else np.iinfo(np.int64).max for step in spec.steps.values()]
        self._agent_limits = np.array(limits, np.int64)
        self._layouts: dict[StepKey, list[tuple[str, spaces.Space[Any], tuple[int, ...]]]] = {}
        for key, step in spec.steps.items():
            parts = step.observation_space.spaces.items()
            self._layouts[key] = [(name, part, (n_envs, *(part.shape or ()))) for name, part in parts]

    def check_reset(self, result: Any, which: Array) -> None:
        """Check the result of a reset.

        Raises:
            EnvContractError: Something has another shape or dtype, or environment time does not start at 0.
        """
        self._require_step(result, "reset")
        self._n_idle[which] = 0
        if result.env_time is not None:
            self._timed_reset = True
            if self._timed_steps is False:
                raise self._untimed_steps("reset")
            times = as_numpy(result.env_time)[which]
            if times.any():
                n = self._number_of(which, times != 0)
                came = f"reset of {self._name} returned env_time {times[times != 0][0]} for environment {n}"
                raise EnvContractError(f"{came}; expected 0: it counts the environment steps of the episode")

    def check_step(self, result: Any, which: Array | slice) -> None:
        """Check rewards, flags and times; finite numbers are checked by whoever uses them.

        Raises:
            EnvContractError: Something has another shape or dtype.
        """
        self._require_step(result, "step")
        is_timed = result.env_time is not None
        if is_timed is not self._timed_steps:
            if self._timed_steps is not None or (self._timed_reset and not is_timed):
                raise self._untimed_steps("reset" if self._timed_steps is None else "another step")
            self._timed_steps = is_timed
        self._require(result.reward, "reward", "fiub", "numbers")
        if result.terminated is not None:
            self._require(result.terminated, "terminated", "b", "booleans")
        if result.truncated is not None:
            self._require(result.truncated, "truncated", "b", "booleans")
        if result.actor_done is not None:
            self._require(result.actor_done, "actor_done", "b", "booleans")
        if result.actor_rewards is not None:
            rewards = as_numpy(result.actor_rewards)
            if rewards.ndim != 2 or len(rewards) != self._n_envs or rewards.dtype.kind not in "fiub":
                came = f"actor_rewards of {self._name} is {describe(rewards)}"
                raise EnvContractError(f"{came}; expected numbers [N, L], one for each act of an environment step")

    def check_finite_reward(self, reward: Any, which: Array | slice) -> None:
        """Require finite rewards before wrappers change them: clipping would hide that one is infinite.

        Args:
            reward: [N] rewards of the environment, found to be well-formed.
            which: The environments that acted.

        Raises:
            EnvContractError: One is not finite.
        """
        rewards = as_numpy(reward)[which]
        is_wrong = ~np.isfinite(rewards)
        if is_wrong.any():
            came = f"step of {self._name} returned the reward {rewards[is_wrong][0]}"
            n = self._number_of(which, is_wrong)
            raise EnvContractError(f"{came} for environment {n}, which is not finite")

    def check_env_actor_rewards(self, result: ArrayStep, finished: Array, n_acts: Array) -> None:
        """Require finite rewards of single actors where wrappers have changed them.

        Args:
            result: Result of a step that was found to be well-formed.
            finished: [n] environments whose environment step has ended.
            n_acts: [n] number of its acts; further entries are not read.

        Raises:
            EnvContractError: One is not finite.
        """
        if result.env_actor_rewards is None or result.env_actor_rewards is result.actor_rewards:
            return
        rewards = as_numpy(result.env_actor_rewards)[finished]
        if np.isfinite(rewards).all():
            return
        is_wrong = ~np.isfinite(rewards) & (np.arange(rewards.shape[1]) < n_acts[:, np.newaxis])
        if is_wrong.any():
            came = f"step of {self._name} returned actor_rewards with the value {rewards[is_wrong][0]}"
            n = self._number_of(finished, np.asarray(is_wrong.any(axis=1)))
            raise EnvContractError(f"{came} for environment {n}, which is not finite")

    def _untimed_steps(self, method: str) -> EnvContractError:
        """Return the error for steps without env_time."""
        fault = f"step of {self._name} returned no env_time, but {method} did"
        remedy = "return the number of complete environment steps [N] in every step"
        return EnvContractError(f"{fault}; {remedy}, or never if every act completes one")

    def _require_step(self, result: Any, method: str) -> None:
        if not isinstance(result, ArrayStep):
            raise EnvContractError(f"{method} of {self._name} returned {describe(result)}; return an ArrayStep")
        if result.env_time is not None:
            self._require(result.env_time, "env_time", "iu", "integers")
        if result.next_key is not None:
            self._require(result.next_key, "next_key", "iu", "integers")
        elif len(self._spec.step_keys) > 1:
            came = f"{method} of {self._name} returned no next_key, but there are sub-steps {self._spec.step_keys}"
            raise EnvContractError(f"{came}; return the position [N] of the next actor's step key among them")
        if result.next_agent is not None:
            self._require(result.next_agent, "next_agent", "iu", "integers")
        else:
            for key, step in self._spec.steps.items():
                if step.n_agents != 1:
                    came = f"{method} of {self._name} returned no next_agent, but sub-step {key!r} has several agents"
                    remedy = "return the id [N] of the next actor, 0 in sub-steps with one agent"
                    raise EnvContractError(f"{came}; {remedy}")

    def _require(self, array: Any, name: str, kinds: str, what: str) -> None:
        """Require an array [N] of one of some kinds of dtypes."""
        numbers = array if type(array) is np.ndarray else as_numpy(array)
        if numbers.shape != self._shape or numbers.dtype.kind not in kinds:
            came = f"{name} of {self._name} is {describe(array if array is None else numbers)}"
            raise EnvContractError(f"{came}; expected {what} of shape ({self._n_envs},), one for each environment")

    def _number_of(self, which: Array | slice, is_wrong: Array) -> int:
        """Return the number of the first of some environments that is wrong, for messages.

        Args:
            which: The environments.
            is_wrong: [n] bool, for each of them.
        """
        return int(np.arange(self._n_envs)[which][is_wrong][0]) + self._first_env_index

    def require_flat(self, is_flat: bool) -> None:
        """Require that every act completes an environment step, as there is no environment time."""
        if not is_flat:
            remedy = "return env_time, the number of complete environment steps [N]"
            raise EnvContractError(f"{self._name} has sub-steps or several agents, but env_time is None; {remedy}")

    def check_time(self, steps: Array, which: Array | slice, ends: Array) -> None:
        """Check that environment time advances, and does not go back.

        Args:
            steps: [n] environment steps that the acts completed.
            which: The environments.
            ends: [n] bool, whether their episodes ended.
        """
        if (steps < 0).any():
            n = self._number_of(which, steps < 0)
            raise EnvContractError(f"env_time of environment {n} of {self._name} went back within an episode")
        if self._spec.is_flat and not steps.all():
            n = self._number_of(which, steps == 0)
            fault = f"env_time of environment {n} of {self._name} did not advance in an act"
            raise EnvContractError(f"{fault}; with a single actor, each act completes at least one environment step")
        idle = np.where(steps > 0, 0, self._n_idle[which] + 1)
        self._n_idle[which] = idle
        if idle.max(initial=0) > MAX_ACTS_PER_ENV_STEP:
            n = self._number_of(which, idle == idle.max())
            fault = f"environment {n} of {self._name} has made {MAX_ACTS_PER_ENV_STEP} acts"
            raise EnvContractError(f"{fault} without environment time advancing; {_ADVANCE}")
        if self._n_standstills is None:
            return
        if (steps > 0).any():
            self._n_standstills = None
            return
        self._n_standstills += int(np.count_nonzero(ends & (idle >= self._n_actors)))
        if self._n_standstills >= _N_STANDSTILLS:
            fault = f"environment time of {self._name} did not advance in {self._n_standstills} episodes"
            raise EnvContractError(f"{fault}; {_ADVANCE}")

    def check_next(self, next_key: Array, next_agent: Array, which: Array | slice) -> None:
        """Check that the next actors have declared step keys and agent ids.

        Args:
            next_key: [N] positions of their step keys.
            next_agent: [N] their ids.
            which: The environments.

        Raises:
            EnvContractError: There is no such actor.
        """
        keys, agents = next_key[which], next_agent[which]
        is_wrong = (keys < 0) | (keys >= len(self._spec.step_keys))
        if is_wrong.any():
            n = self._number_of(which, is_wrong)
            declared = f"declared are {len(self._spec.step_keys)} sub-steps: {self._spec.step_keys}"
            raise EnvContractError(f"next_key of environment {n} of {self._name} is {keys[is_wrong][0]}; {declared}")
        is_wrong = (agents < 0) | (agents >= self._agent_limits[keys])
        if is_wrong.any():
            n = self._number_of(which, is_wrong)
            key = self._spec.step_keys[keys[is_wrong][0]]
            came = f"next_agent of environment {n} of {self._name} is {agents[is_wrong][0]}"
            count = self._spec.steps[key].n_agents
            expected = f"ids 0 to {count - 1}" if count > 0 else "ids of at least 0"
            raise EnvContractError(f"{came}; expected {expected} in sub-step {key!r}")

    def observation_of(self, result: ArrayStep, key: StepKey, which: Array | slice) -> dict[str, Array]:
        """Return the observations of a sub-step as arrays [N, ...].

        Raises:
            EnvContractError: One is missing, or has another shape or a dtype that cannot be converted, or integers
                that the dtype of its space cannot hold; with full checks, one is additional or outside of its space.
        """
        tree = result.observation.get(key) if isinstance(result.observation, Mapping) else None
        layout = self._layouts[key]
        if not isinstance(tree, Mapping) or not all(name in tree for name, _, _ in layout):
            came = str(sorted(tree)) if isinstance(tree, Mapping) else describe(tree)
            expected = f"expected {sorted(name for name, _, _ in layout)} by name"
            raise EnvContractError(f"the observations of sub-step {key!r} of {self._name} are {came}; {expected}")
        if self._is_full and len(tree) != len(layout):
            came = f"the observations of sub-step {key!r} of {self._name} are {sorted(tree)}"
            raise EnvContractError(f"{came}; expected only {sorted(name for name, _, _ in layout)}")
        arrays = {}
        for name, part, shape in layout:
            array = arrays[name] = as_numpy(tree[name])
            is_same = array.dtype == part.dtype
            if array.shape != shape or not (is_same or np.can_cast(array.dtype, np.dtype(part.dtype), "same_kind")):
                message = f"observation {name!r} of sub-step {key!r} of {self._name} is {describe(array)}"
                raise EnvContractError(f"{message}; expected shape {shape} and type {part.dtype}")
            if not is_same:
                self._check_integers(array, np.dtype(part.dtype), f"observation {name!r} of sub-step {key!r}", which)
            if self._is_full:
                self._check_bounds(array, part, f"observation {name!r} of sub-step {key!r}", which)
        return arrays

    def _check_integers(self, array: Array, dtype: np.dtype, what: str, which: Array | slice) -> None:
        """Require that a narrower dtype holds the integers of an array; floats are rounded to it."""
        if array.dtype.kind not in "iu" or dtype.kind not in "iu" or np.can_cast(array.dtype, dtype, "safe"):
            return
        values = array[which]
        is_wrong = values.astype(dtype) != values
        if is_wrong.any():
            n = self._number_of(which, is_wrong.reshape(len(values), -1).any(axis=1))
            came = f"{what} of environment {n} of {self._name} has the value {values[is_wrong][0]}"
            raise EnvContractError(f"{came}, which its type {dtype} cannot hold; declare a space of type {array.dtype}")

    def _check_bounds(self, array: Array, space: spaces.Space[Any], what: str, which: Array | slice) -> None:
        """Require that the values lie in their space; NaN is left to whoever uses them."""
        values = array[which]
        if isinstance(space, spaces.Box):
            is_inside = ((values >= space.low) & (values <= space.high)) | np.isnan(values)
        elif isinstance(space, spaces.Discrete):
            is_inside = (values >= space.start) & (values < space.start + space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            is_inside = (values >= space.start) & (values < space.start + space.nvec)
        else:
            is_inside = (values == 0) | (values == 1)
        is_wrong: Array = np.asarray(~is_inside.reshape(len(values), -1).all(axis=1))
        if is_wrong.any():
            n = self._number_of(which, is_wrong)
            came = f"{what} of environment {n} of {self._name} is {values[is_wrong][0].tolist()}"
            raise EnvContractError(f"{came}, which is not in {space}")

    def check_kpis(self, kpis: Any, ended: Array, names: tuple[str, ...]) -> dict[str, Array]:
        """Check the KPIs of ended episodes.

        Returns:
            The KPIs as arrays, in the order of their declaration.

        Raises:
            StatisticsError: They have no names, or one has another shape, is infinite, or is not declared. Declared
                ones that the first episodes lack cause a `MissingKpiWarning`.
        """
        if not isinstance(kpis, Mapping):
            fault = f"kpis of {self._name} returned {describe(kpis)}"
            raise StatisticsError(f"{fault}; return a dict from name to numbers [n], which may be empty")
        arrays = {name: as_numpy(values) for name, values in kpis.items()}
        for name, values in arrays.items():
            if name not in names:
                raise StatisticsError(f"{self._name} computes the KPI {name!r}: add it to kpi_names, which has {names}")
            if values.shape != (len(ended),) or values.dtype.kind not in "fiub":
                came = f"KPI {name!r} of {self._name} is {describe(values)}"
                raise StatisticsError(f"{came} for {len(ended)} episodes; return one number for each, NaN for no value")
            refuse_infinite_kpi(name, values, ended + self._first_env_index)
        if not self._has_kpis:
            self._has_kpis = True
            missing = [name for name in names if name not in arrays]
            if missing:
                fault = f"{self._name} declares the KPIs {missing} in kpi_names, but kpis did not return them"
                remedy = "return numbers [n] for each, NaN where an episode has no value"
                warnings.warn(f"{fault}: {remedy}", MissingKpiWarning, stacklevel=2)
        return {name: arrays[name] for name in names if name in arrays}  # tables have this order
