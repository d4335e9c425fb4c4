"""Copies of episodes of array environments continue as the original does, or are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs.arrays import ArrayMazeEnv, ArrayStep
from maze_pl.envs.contract import EnvContractError
from maze_pl.runs.rollout import rollout
from tests.envs.arrays.guessing import InArray, InNumber, InObject, InText, MadeLater, NewArray, NewDict

KINDS: list[Any] = [InArray, InNumber, InText, MadeLater, NewArray, NewDict]


def _played(kind: Any, n_acts: int, seed: int) -> ArrayMazeEnv:
    env = ArrayMazeEnv(kind())
    env.reset(seed=seed)
    _rewards(env, n_acts)
    return env


def _rewards(env: ArrayMazeEnv, n_acts: int) -> list[float]:
    return [float(env.step({"guess": 1})[1]) for _ in range(n_acts)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_before", [0, 1, 4])
@pytest.mark.parametrize("n_of_target", [0, 3])
def test_copies_continue_as_the_original_does(kind: Any, n_before: int, n_of_target: int) -> None:
    original, target = _played(kind, n_before, seed=7), _played(kind, n_of_target, seed=9)
    target.clone_from(original)
    expected = _rewards(_played(kind, n_before, seed=7), 10 - n_before)  # played without copies
    assert _rewards(target, 10 - n_before) == expected
    assert _rewards(original, 10 - n_before) == expected  # which the copy has not changed


@pytest.mark.parametrize("kind", [InArray, InNumber])
def test_search_with_perfect_copies_guesses_everything(kind: Any) -> None:
    played = rollout(kind, "random", 3, seed=0, search="lookahead:random:8:horizon=1", n_envs=1, record=())
    assert [one.summary.reward for one in played] == [10.0] * 3


def test_search_is_refused_where_copies_would_lack_state() -> None:
    message = "InObject changes 'simulation.held', which checkpoints and copies do not hold: make it an attribute"
    with pytest.raises(EnvContractError, match=message):
        rollout(InObject, "random", 1, seed=0, search="lookahead:random:8:horizon=1", record=())


@pytest.mark.parametrize("n_before", [0, 1, 2, 3, 5])
def test_lacking_state_is_noticed_when_it_changes_after_the_first_copy(n_before: int) -> None:
    class Late(InArray):
        """Changes an array in an object from the fifth step on."""

        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.late = SimpleNamespace(count=np.zeros(n_envs))

        def step(self, actions: Any, which: Any) -> ArrayStep:
            result = super().step(actions, which)
            self.late.count += self.time == 5
            return result

    env, target = _played(Late, 0, seed=1), _played(Late, 0, seed=1)
    for _ in range(min(n_before, 4)):
        target.clone_from(env)
        env.step({"guess": 0})
    _rewards(env, 9 - min(n_before, 4))
    with pytest.raises(EnvContractError, match=r"Late changes 'late\.count'"):
        target.clone_from(env)


@pytest.mark.parametrize("make", [np.ones, torch.ones, lambda n: np.random.default_rng(n)])
def test_copied_environments_can_be_copied_again(make: Callable[[int], Any]) -> None:
    class Table(InArray):
        """Has a constant in an object."""

        def allocate(self, n_envs: int) -> None:
            super().allocate(n_envs)
            self.table = SimpleNamespace(held=make(n_envs))

    env = copy.deepcopy(_played(Table, 2, seed=3))
    target = _played(Table, 0, seed=1)
    target.clone_from(env)
    assert _rewards(target, 8) == _rewards(env, 8)
