"""Wrappers of array environments begin again with the state that they had before their first episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayWrapper
from tests.equality import assert_equal

N_ENVS = 3


class RisingPrice(ArrayWrapper):
    """Pays each act with the number of the episode, times a factor that doubles with each step of the vector."""

    def __init__(self, env: ArrayEnv) -> None:
        super().__init__(env)
        self.factor = np.ones(1)

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.level = np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.level[which] += 1
        self.latest = np.array(seeds)  # a new array
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.factor = self.factor * 2  # takes the place of an argument
        result.reward = self.level * self.factor
        return result


def rewards(vector: ArrayVectorEnv) -> list[Any]:
    vector.reset()
    found = []
    for _ in range(4):
        vector.step()
        found.append(vector.staging.reward.copy())
    return found


def test_rewards_are_those_of_a_first_episode_whenever_wrappers_begin_again() -> None:
    vector = ArrayVectorEnv(lambda: RisingPrice(RisingPrice(CartPoleArrayEnv())), N_ENVS, autoreset=False)
    vector.reset_wrappers()
    expected = [np.full(N_ENVS, 2.0**act) for act in range(1, 5)]
    assert_equal(rewards(vector), expected)
    later = rewards(vector)
    assert_equal(later, [2 * 16 * row for row in expected])
    for _ in range(2):
        vector.reset_wrappers()
        assert_equal(rewards(vector), expected)


def test_an_environment_without_wrappers_is_left_alone() -> None:
    vector = ArrayVectorEnv(CartPoleArrayEnv, N_ENVS, autoreset=False)
    vector.reset_wrappers()
    vector.reset()
    vector.step()
    before = vector.state_dict()
    vector.reset_wrappers()
    assert_equal(vector.state_dict(), before)
