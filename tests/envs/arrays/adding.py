"""Array environments whose steps raise a number outside of the arrays of their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maze_pl.envs import ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv

N = 3

Functions = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""As the arguments of `Adding`."""


class Adding(CartPoleArrayEnv):
    """The reward is a number that each step raises, and that something other than an array of the state holds.

    Args:
        make: Makes what holds the numbers of some environments.
        raise_number: Raises the number of an environment.
        read: Reads it.
    """

    def __init__(self, make: Any, raise_number: Any, read: Any) -> None:
        super().__init__()
        self.make, self.raise_number, self.read = make, raise_number, read

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.held = self.make(n_envs)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        result.reward = np.zeros(self.n_envs)
        for n in self.numbers_of(which).tolist():
            self.raise_number(self.held, n)
            result.reward[n] = self.read(self.held, n)
        return result


def episode_of(functions: Functions, n_acts: int, seed: int) -> ArrayMazeEnv:
    env = ArrayMazeEnv(Adding(*functions))
    env.reset(seed=seed)
    rewards_of(env, n_acts)
    return env


def rewards_of(env: ArrayMazeEnv, n_acts: int) -> list[float]:
    return [float(env.step({"action": n % 2})[1]) for n in range(n_acts)]


def vector_of(env: Any, n_steps: int) -> ArrayVectorEnv:
    vector = ArrayVectorEnv(lambda: env, N, seed=4)
    vector.reset()
    for _ in range(n_steps):
        vector.step()
    return vector
