"""Environments of a vector are separate objects."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import gymnasium
import pytest

from maze_pl import rollout
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.vector.made_environments import MadeEnvironments


def make_env() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def test_a_vector_refuses_the_same_environment_twice() -> None:
    env = make_env()
    remedy = r"make a new one in each call, as lambda: CartPoleEnv\(\.\.\.\) does"
    with pytest.raises(ValueError, match=rf"the same CartPole-v1 twice, whose episodes .*: {remedy}"):
        SequentialVectorEnv([lambda: env] * 2)
    SequentialVectorEnv([lambda: env]).close()


def test_a_rollout_plays_one_environment_if_it_gets_it_and_refuses_a_function_that_returns_it_again() -> None:
    env = make_env()
    trajectories = rollout(env, episodes=3, max_steps=5)
    assert [trajectory.summary.env_steps for trajectory in trajectories] == [5, 5, 5]
    with pytest.raises(ValueError, match="the same CartPole-v1 twice"):
        rollout(lambda: env, episodes=3, max_steps=5)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_know_no_environments(copied: Any) -> None:
    env = make_env()
    made = MadeEnvironments()
    made.new(lambda: env)
    assert copied(made).new(lambda: env) is env


def test_environments_may_share_what_is_no_environment() -> None:
    class Sharing(gymnasium.Env[Any, Any]):
        env = object()  # such as a handle of a simulator
        observation_space = gymnasium.spaces.Box(0, 1)
        action_space = gymnasium.spaces.Discrete(2)

    made = MadeEnvironments()
    first, second = made.new(Sharing), made.new(Sharing)
    assert first is not second
    with pytest.raises(ValueError, match="the same Sharing twice"):
        made.new(lambda: first)


def test_known_environments_are_not_kept_alive() -> None:
    made = MadeEnvironments()
    known = weakref.ref(made.new(make_env).core_env.env.unwrapped)
    gc.collect()
    assert known() is None
