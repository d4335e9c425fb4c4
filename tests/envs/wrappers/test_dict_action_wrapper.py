from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.wrappers import DictActionWrapper, DictObservationWrapper
from tests.envs.structured_example import make_heap_env
from tests.envs.wrappers.environments import AnyAction, Bare, make_bare_heap_env

PARTS = (spaces.Discrete(2), spaces.Box(-1, 1, (2,)))


def test_single_actions_get_a_name_in_each_sub_step() -> None:
    env = DictActionWrapper.wrap(DictObservationWrapper.wrap(make_bare_heap_env()))
    env.reset(seed=0)
    for key in ("plan", "work"):
        assert env.action_space == spaces.Dict({"action": spaces.Discrete(4)})
        env.step({"action": 3})
        assert env.get_maze_action() == (key, 3)


def test_tuples_of_actions_get_names_with_numbers() -> None:
    core_env = GymCoreEnv(AnyAction(spaces.Tuple(PARTS)))
    bare = MazeEnv(core_env, {0: Bare(spaces.Tuple(PARTS))}, {0: Bare(spaces.Box(0, 1, (1,)))})
    env = DictActionWrapper.wrap(bare)
    assert env.action_space == spaces.Dict({"action_0": PARTS[0], "action_1": PARTS[1]})
    action: dict[str, Any] = {"action_0": 1, "action_1": np.float32([0.5, -0.5])}
    env.reset(seed=0)
    env.step(action)
    first, second = env.get_maze_action()
    assert first == 1
    np.testing.assert_array_equal(second, [0.5, -0.5])
    _, actions = env.get_observation_and_action_dicts(None, env.get_maze_action(), True)
    np.testing.assert_equal(actions, {0: action})


def test_the_seed_of_reset_determines_what_the_space_samples() -> None:
    env = DictActionWrapper.wrap(DictObservationWrapper.wrap(make_bare_heap_env()))
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append([env.action_space.sample()["action"] for _ in range(10)])
    assert samples[0] == samples[1] != samples[2]


def test_actions_with_names_are_refused() -> None:
    for env in (GymMazeEnv("CartPole-v1"), make_heap_env()):
        with pytest.raises(TypeError, match=r"the result of DictActionWrapper for sub-step .* type Dict"):
            DictActionWrapper.wrap(env)
