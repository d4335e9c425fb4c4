from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import MazeEnv
from maze_pl.envs.wrappers import DiscretizeActionsWrapper, SplitActionsWrapper
from tests.envs.wrappers.environments import make_action_env, make_vector_heap_env

BOX = spaces.Box(np.array([-1, -2, -3], np.float32), np.array([1, 2, 3], np.float32))
SPLIT = {"action": {"first": {"indices": [2, 0]}, "second": {"indices": [1]}}}


@pytest.mark.parametrize(
    ("space", "parts", "whole"),
    [
        (BOX, {"first": np.float32([3, -1]), "second": np.float32([0.5])}, [-1, 0.5, 3]),
        (spaces.MultiDiscrete([2, 3, 4]), {"first": np.array([3, 1]), "second": np.array([2])}, [1, 2, 3]),
        (spaces.MultiBinary(3), {"first": np.int8([0, 1]), "second": np.int8([1])}, [1, 1, 0]),
    ],
)
def test_parts_are_joined_and_split_again(space: Any, parts: dict[str, Any], whole: list[float]) -> None:
    env = SplitActionsWrapper.wrap(make_action_env(space), split_config=SPLIT)
    assert env.action_space.contains(parts)
    joined = env.action(parts)
    assert list(joined) == ["action"]
    assert space.contains(joined["action"])
    np.testing.assert_array_equal(joined["action"], np.array(whole, space.dtype))
    np.testing.assert_equal(env.reverse_action(joined), parts)


def test_spaces_have_the_bounds_of_their_entries() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    first: Any = env.action_space["first"]
    assert (first.low.tolist(), first.high.tolist()) == ([-3, -1], [3, 1])
    env = SplitActionsWrapper.wrap(make_action_env(spaces.MultiDiscrete([2, 3, 4])), split_config=SPLIT)
    assert env.action_space["first"] == spaces.MultiDiscrete([4, 2])


def test_the_simulation_gets_the_joined_action_in_each_sub_step() -> None:
    env = SplitActionsWrapper.wrap(
        make_vector_heap_env(), split_config={"amount": {"a": {"indices": [0]}, "b": {"indices": [1]}}}
    )
    env.reset(seed=0)
    for key in ("plan", "work"):
        assert env.actor_id() == ActorID(key, 0)
        env.step({"a": np.float32([3]), "b": np.float32([1])})
        assert env.get_maze_action() == (key, 2)


def test_parts_can_be_discretised_apart() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    env = DiscretizeActionsWrapper.wrap(env, discretization_config={"second": {"num_bins": 3}})  # type: ignore[assignment]
    assert env.action_space == spaces.Dict({"first": env.env.action_space["first"], "second": spaces.Discrete(3)})
    env.reset(seed=0)
    env.step({"first": np.float32([3, -1]), "second": 2})
    np.testing.assert_array_equal(env.get_maze_action(), [-1, 2, 3])


def test_the_seed_of_reset_determines_what_the_new_spaces_sample() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append(str(env.action_space.sample()))
    assert samples[0] == samples[1] != samples[2]


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        (make_action_env, {"move": {}}, r"\['move'\].*not among \['action'\]"),
        (make_action_env, {"action": {"a": {"indices": [0, 1]}}}, "each entry in exactly one of.*'a'"),
        (make_action_env, {"action": {"a": {"indices": [0, 1, 2]}, "b": {"indices": [2]}}}, "exactly one of"),
        (lambda: make_action_env(spaces.Discrete(3)), {"action": {"a": {"indices": [0]}}}, r"Discrete\(3\)"),
        (lambda: make_action_env(spaces.Box(0, 1, (2, 2))), {"action": {"a": {"indices": [0, 1]}}}, "vector"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, config: Any, message: str) -> None:
    env: MazeEnv = make()
    with pytest.raises(ValueError, match=message):
        SplitActionsWrapper.wrap(env, split_config=config)


def test_two_heads_of_one_name_are_refused() -> None:
    env = SplitActionsWrapper.wrap(make_action_env(BOX), split_config=SPLIT)
    with pytest.raises(ValueError, match=r"'second', 'third', 'second'\] have the same name"):
        SplitActionsWrapper.wrap(env, split_config={"first": {"second": {"indices": [0]}, "third": {"indices": [1]}}})
