"""Division of rewards in arrays by the standard deviation of discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper
from maze_pl.envs.arrays.reward_array_wrapper import is_numbers
from maze_pl.envs.structured_env import Array


class ReturnNormalizationArrayWrapper(ArrayWrapper):
    """Divides rewards by the running standard deviation of the discounted return.

    All numbers, those in checkpoints too, equal those of a `ReturnNormalizationRewardWrapper` around
    each environment: each has its own returns and statistics until they are merged. Tensors are
    copied to the host.

    Args:
        env: The environment to wrap.
        gamma: Discount factor of the return.
        epsilon: Added to the variance.
    """

    def __init__(self, env: ArrayEnv, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        self.gamma, self.epsilon = gamma, epsilon
        self._is_frozen = False

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.base = np.array([1.0, 0.0, 0.0])  # number, mean and m2 of the returns at the last merge, at first of a 0
        self.n = np.zeros(n_envs)  # of the returns since the last merge
        self.mean = np.zeros(n_envs)
        self.m2 = np.zeros(n_envs)
        self.scale = np.ones(n_envs)
        self.returns = np.zeros(n_envs)
        self.step_reward = np.zeros(n_envs)  # of the incomplete environment steps
        self.env_time = np.zeros(n_envs, np.int64)
        self.act_base = self.base.copy()  # as above, of the returns of acts
        self.act_n = np.zeros(n_envs)
        self.act_mean = np.zeros(n_envs)
        self.act_m2 = np.zeros(n_envs)
        self.act_returns = np.zeros((n_envs, 0))  # by place in the environment step
        self.n_acts = np.zeros(n_envs, np.int64)  # in the running environment steps

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode, and a new return."""
        result = super().reset(which, seeds)
        if not isinstance(result, ArrayStep):
            return result  # the caller reports it
        self.returns[which] = 0.0
        self.act_returns[which] = 0.0
        self.n_acts[which] = 0
        self.step_reward[which] = 0.0
        self.env_time[which] = 0 if result.env_time is None else as_numpy(result.env_time)[which]
        return result

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Step, update the statistics by the rewards, and normalise them."""
        result = super().step(actions, which)
        if not isinstance(result, ArrayStep) or not is_numbers(result.reward):
            return result  # the caller reports it
        rewards = as_numpy(result.reward).astype(np.float64)
        if not self._is_frozen:
            self._learn(rewards, result, self.numbers_of(which))
        result.reward = rewards / self.scale
        if is_numbers(result.actor_rewards):
            result.actor_rewards = as_numpy(result.actor_rewards) / self.scale[:, np.newaxis]
        return result

    def _learn(self, rewards: Array, result: ArrayStep, which: Array) -> None:
        """Add the returns of complete environment steps to the statistics."""
        self.step_reward[which] += rewards[which]
        self.n_acts[which] += 1
        now = self.env_time[which] + 1 if result.env_time is None else as_numpy(result.env_time)[which]
        is_complete = now != self.env_time[which]
        for flags in (result.terminated, result.truncated):
            if flags is not None:
                is_complete |= as_numpy(flags)[which]
        envs = which[is_complete]
        if not len(envs):
            return
        n_steps = np.maximum(now[is_complete] - self.env_time[envs], 1)
        powers = np.array([self.gamma**power for power in range(int(n_steps.max()) + 1)])
        discount = powers[n_steps]
        returns = self.step_reward[envs] + discount * self.returns[envs]
        self.returns[envs] = returns
        self.n[envs] += 1
        difference = returns - self.mean[envs]
        self.mean[envs] += difference / self.n[envs]
        self.m2[envs] += difference * (returns - self.mean[envs])
        self.step_reward[envs] = 0.0
        self.env_time[envs] = now[is_complete]
        of_acts: Array = as_numpy(result.actor_rewards) if is_numbers(result.actor_rewards) else np.zeros(0)
        if of_acts.ndim == 2 and of_acts.shape[1]:  # the caller reports others
            self._learn_of_acts(of_acts[envs].astype(np.float64), envs, discount)
        self.n_acts[envs] = 0
        self._update_scale(envs)

    def _learn_of_acts(self, rewards: Array, envs: Array, discount: Array) -> None:
        """Add the returns of the acts of complete environment steps to the statistics.

        Args:
            rewards: [n, L] rewards attributed to the acts.
            envs: [n] their environments.
            discount: [n] discounts of their earlier returns.
        """
        n_places = rewards.shape[1]
        n_new = n_places - self.act_returns.shape[1]
        if n_new > 0:
            self.act_returns = np.pad(self.act_returns, ((0, 0), (0, n_new)))
        is_act = np.arange(n_places) < self.n_acts[envs, np.newaxis]
        returns = rewards + discount[:, np.newaxis] * self.act_returns[envs, :n_places]
        returns = np.where(is_act, returns, 0.0)
        self.act_returns[envs] = 0.0
        self.act_returns[envs, :n_places] = returns
        count = is_act.sum(axis=1).astype(np.float64)
        before = _Moments(self.act_n[envs], self.act_mean[envs], self.act_m2[envs])
        with np.errstate(invalid="ignore"):  # infinite rewards are refused after the step
            mean = _sum_in_order(returns) / count
            difference = np.where(is_act, returns - mean[:, np.newaxis], 0.0)
            after = before.merged(_Moments(count, mean, _sum_in_order(difference * difference)))
        self.act_n[envs] = after.n
        self.act_mean[envs] = after.mean
        self.act_m2[envs] = after.m2

    def _update_scale(self, envs: Array) -> None:
        """Compute the standard deviations of the merged statistics; 1 while all returns were 0."""
        of_sums = _Moments(*self.base).merged(_Moments(self.n[envs], self.mean[envs], self.m2[envs]))
        variance = of_sums.variance
        if self.act_base[0] > 1 or self.act_n.any():
            delta = _Moments(self.act_n[envs], self.act_mean[envs], self.act_m2[envs])
            variance = np.maximum(variance, _Moments(*self.act_base).merged(delta).variance)
        self.scale[envs] = np.where(variance > 0, np.sqrt(variance + self.epsilon), 1.0)

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics at the last merge, and those of each environment since."""
        states = _states_of(self.base, self.n, self.mean, self.m2)
        of_acts = _states_of(self.act_base, self.act_n, self.act_mean, self.act_m2)
        for state, acts in zip(states, of_acts, strict=True):
            if acts["base"][0] + acts["delta"][0] > 1:
                state["acts"] = acts
        return states

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics, and continue from there."""
        acts = state.get("acts", {"base": [1, 0.0, 0.0], "delta": [0, 0.0, 0.0]})
        self.base[...] = state["base"]
        self.act_base[...] = acts["base"]
        for array, number in zip((self.n, self.mean, self.m2), state["delta"], strict=True):
            array.fill(number)
        for array, number in zip((self.act_n, self.act_mean, self.act_m2), acts["delta"], strict=True):
            array.fill(number)
        self._update_scale(np.arange(self.n_envs))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; those of 0.2.0 have no returns of acts."""
        complete = {"act_base": np.array([1.0, 0.0, 0.0])}
        for name in ("act_n", "act_mean", "act_m2"):
            complete[name] = np.zeros(self.n_envs)
        complete |= {"act_returns": np.zeros((self.n_envs, 0)), "n_acts": np.zeros(self.n_envs, np.int64), **state}
        self.act_returns = np.zeros(complete["act_returns"].shape)
        super().load_state_dict(complete)

    def freeze(self) -> None:
        """Normalise by the current statistics from now on, without updating them."""
        self._is_frozen = True


class _Moments(NamedTuple):
    """Number, mean and sum of squared differences from it, in arrays [n] or as numbers."""

    n: Array
    mean: Array
    m2: Array

    def merged(self, other: _Moments) -> _Moments:
        """Return the moments of both sets of numbers, computed as by `Moments.merge`."""
        n = self.n + other.n
        difference = other.mean - self.mean
        total = np.maximum(n, 1.0)
        mean = self.mean + difference * other.n / total
        m2 = self.m2 + other.m2 + difference * difference * self.n * other.n / total
        is_first, is_nothing = self.n == 0, other.n == 0
        mean = np.where(is_first, other.mean, np.where(is_nothing, self.mean, mean))
        return _Moments(n, mean, np.where(is_first, other.m2, np.where(is_nothing, self.m2, m2)))

    @property
    def variance(self) -> Array:
        """Variance of the numbers; 0 without any."""
        variance: Array = self.m2 / np.maximum(self.n, 1.0)
        return variance


def _sum_in_order(rows: Array) -> Array:
    """[n] sums of rows [n, L], number by number, so that zeros at the end change no digit."""
    return np.cumsum(rows, axis=1)[:, -1]


def _states_of(base: Array, n: Array, mean: Array, m2: Array) -> list[dict[str, Any]]:
    """Return common and further statistics for each environment, in the form of the wrapper for single episodes."""
    base_n, base_mean, base_m2 = base.tolist()
    states = []
    for delta in zip(n.astype(np.int64).tolist(), mean.tolist(), m2.tolist(), strict=True):
        states.append({"base": [int(base_n), base_mean, base_m2], "delta": list(delta)})
    return states
