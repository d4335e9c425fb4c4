"""Policies by their names."""

from __future__ import annotations

from typing import Any

import pytest

from maze_pl.agents import DummyCartPolePolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.policies import make_policy


def cart_pole(heuristic: Any) -> GymMazeEnv:
    env = GymMazeEnv("CartPole-v1")
    env.heuristic_policy = heuristic
    return env


def test_the_heuristic_is_named_by_its_class_path() -> None:
    env = cart_pole("maze_pl.agents.DummyCartPolePolicy")
    assert isinstance(make_policy("heuristic", Spec.of(env), env), DummyCartPolePolicy)


def test_a_heuristic_that_is_a_class_is_refused_and_does_not_hinder_other_policies() -> None:
    env = cart_pole(DummyCartPolePolicy)
    with pytest.raises(ValueError, match=r"heuristic_policy of CartPole-v1 is <class .*give the class path as text"):
        make_policy("heuristic", Spec.of(env), env)
    make_policy("random", Spec.of(env), env)
