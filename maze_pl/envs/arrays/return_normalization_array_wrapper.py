"""Division of rewards in arrays by the standard deviation of discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode, and a new return."""
        result = super().reset(which, seeds)
        if not isinstance(result, ArrayStep):
            return result  # the caller reports it
        self.returns[which] = 0.0
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
        returns = self.step_reward[envs] + powers[n_steps] * self.returns[envs]
        self.returns[envs] = returns
        self.n[envs] += 1
        difference = returns - self.mean[envs]
        self.mean[envs] += difference / self.n[envs]
        self.m2[envs] += difference * (returns - self.mean[envs])
        self.step_reward[envs] = 0.0
        self.env_time[envs] = now[is_complete]
        self._update_scale(envs)

    def _update_scale(self, envs: Array) -> None:
        """Compute the standard deviations of the merged statistics; 1 while all returns were 0."""
        base_n, base_mean, base_m2 = self.base.tolist()
        n, m2 = self.n[envs], self.m2[envs]
        total = base_n + n
        if base_n:
            difference = self.mean[envs] - base_mean
            merged = base_m2 + m2 + difference * difference * base_n * n / total
            m2 = np.where(n > 0, merged, base_m2)
        is_spread = m2 > 0
        scale = np.ones(len(envs))
        scale[is_spread] = np.sqrt(m2[is_spread] / total[is_spread] + self.epsilon)
        self.scale[envs] = scale

    def shared_states(self) -> list[dict[str, Any]]:
        """Return the statistics at the last merge, and those of each environment since."""
        n, mean, m2 = self.base.tolist()
        base = [int(n), mean, m2]
        states = []
        columns = (self.n.astype(np.int64).tolist(), self.mean.tolist(), self.m2.tolist())
        for delta in zip(*columns, strict=True):
            states.append({"base": list(base), "delta": list(delta)})
        return states

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics, and continue from there."""
        self.base[...] = state["base"]
        for array, number in zip((self.n, self.mean, self.m2), state["delta"], strict=True):
            array.fill(number)
        self._update_scale(np.arange(self.n_envs))

    def freeze(self) -> None:
        """Normalise by the current statistics from now on, without updating them."""
        self._is_frozen = True
