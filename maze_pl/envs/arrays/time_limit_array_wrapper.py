"""Truncation of episodes in arrays after a number of environment steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper


class TimeLimitArrayWrapper(ArrayWrapper):
    """Truncates episodes in the act that completes a number of environment steps; see `TimeLimitWrapper`.

    Args:
        env: The environment to wrap.
        max_episode_steps: Environment steps after which an episode is truncated.
    """

    def __init__(self, env: ArrayEnv, max_episode_steps: int) -> None:
        super().__init__(env)
        if max_episode_steps < 1:
            raise ValueError(f"max_episode_steps={max_episode_steps} must be at least 1")
        self.max_episode_steps = max_episode_steps

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.n_steps = np.zeros(n_envs, np.int64)

    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode in some environments."""
        self.n_steps[which] = 0
        return super().reset(which, seeds)

    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Perform one act in some environments, and truncate those whose time is over."""
        result = super().step(actions, which)
        if not isinstance(result, ArrayStep):
            return result  # the caller reports it
        before = self.n_steps[which].copy()  # a slice would be a view
        now = before + 1 if result.env_time is None else as_numpy(result.env_time)[which]
        self.n_steps[which] = now
        truncated = np.zeros(self.n_envs, np.bool_)
        truncated[which] = (now >= self.max_episode_steps) & (now > before)
        if result.terminated is not None:
            truncated &= ~as_numpy(result.terminated)
        if result.truncated is not None:
            truncated |= as_numpy(result.truncated)
        result.truncated = truncated
        return result
