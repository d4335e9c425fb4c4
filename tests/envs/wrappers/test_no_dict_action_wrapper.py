from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.cutting_2d import maze_env_factory
from maze_pl.envs.wrappers import NoDictActionWrapper, SplitActionsWrapper, TimeLimitWrapper
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


def test_several_discrete_heads_become_one_array_in_their_order() -> None:
    env: Any = NoDictActionWrapper.wrap(maze_env_factory(5, (4, 3), (1, 2)))
    assert env.action_space == spaces.MultiDiscrete([5, 2, 2])
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append([env.action_space.sample().tolist() for _ in range(3)])
    assert samples[0] == samples[1] != samples[2]
    env.step(np.array([0, 1, 0]))
    taken = env.get_maze_action()
    assert (taken.piece_id, taken.rotate, taken.reverse_cutting_order) == (0, True, False)
    assert list(env.action(np.array([3, 0, 1])).items()) == [("piece_idx", 3), ("cut_rotation", 0), ("cut_order", 1)]
    np.testing.assert_array_equal(env.reverse_action(env.action(np.array([3, 0, 1]))), [3, 0, 1])


def test_other_libraries_train_on_several_heads_and_observations() -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    env: Any = TimeLimitWrapper.wrap(maze_env_factory(5, (4, 3), (1, 2)), max_episode_steps=20)
    model = stable_baselines3.A2C("MultiInputPolicy", NoDictActionWrapper.wrap(env), n_steps=8, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(32)
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))


def test_structured_environments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"NoDictActionWrapper requires a flat environment"):
        NoDictActionWrapper.wrap(make_heap_env())
