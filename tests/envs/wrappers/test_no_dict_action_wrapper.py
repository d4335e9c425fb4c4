from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import NoDictActionWrapper, SplitActionsWrapper
from tests.envs.scripted import Scripted
from tests.envs.structured_example import make_heap_env
from tests.envs.wrappers.environments import make_action_env


def test_actions_are_the_only_head_within_its_bounds() -> None:
    env = NoDictActionWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0])))
    assert isinstance(env.action_space, spaces.Box) and isinstance(env.observation_space, spaces.Dict)
    env.reset(seed=0)
    env.step(np.float32([3.0]))
    np.testing.assert_array_equal(env.get_maze_action(), [1.0])


def test_integers_are_pythons_own() -> None:
    assert type(NoDictActionWrapper.wrap(GymMazeEnv("CartPole-v1")).action(np.int64(1))["action"]) is int


def test_the_seed_of_reset_determines_what_the_space_samples() -> None:
    env: Any = NoDictActionWrapper.wrap(GymMazeEnv("Pendulum-v1"))
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append(float(env.action_space.sample()[0]))
    assert samples[0] == samples[1] != samples[2]


def test_several_heads_are_refused_by_name() -> None:
    env = SplitActionsWrapper.wrap(
        make_action_env(), split_config={"action": {"a": {"indices": [0]}, "b": {"indices": [1, 2]}}}
    )
    with pytest.raises(ValueError, match=r"actions with a single entry, but there are \['a', 'b'\]"):
        NoDictActionWrapper.wrap(env)


def test_structured_environments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"NoDictActionWrapper is for flat environments"):
        NoDictActionWrapper.wrap(make_heap_env())
