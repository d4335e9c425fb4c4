from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs.wrappers import DiscretizeActionsWrapper
from tests.envs.wrappers.environments import make_action_env, make_vector_heap_env

BOX = spaces.Box(np.array([[-1, -2]], np.float32), np.array([[1, 2]], np.float32))


def discretized(space: Any, **entry: Any) -> DiscretizeActionsWrapper:
    return DiscretizeActionsWrapper.wrap(make_action_env(space), discretization_config={"action": entry})


def test_one_entry_becomes_discrete_with_both_ends_among_its_values() -> None:
    env = discretized(spaces.Box(-1, 1, (1,)), num_bins=5)
    assert env.action_space == spaces.Dict({"action": spaces.Discrete(5)})
    values = [env.action({"action": i})["action"] for i in range(5)]
    np.testing.assert_array_equal(values, np.float32([[-1], [-0.5], [0], [0.5], [1]]))
    assert values[0].dtype == np.float32
    assert [env.reverse_action({"action": value}) for value in values] == [{"action": i} for i in range(5)]


def test_several_entries_become_multi_discrete_each_with_its_bounds() -> None:
    env = discretized(BOX, num_bins=3, low=[[0, -2]], high=1)
    assert env.action_space["action"] == spaces.MultiDiscrete([3, 3])
    np.testing.assert_array_equal(env.action({"action": np.array([1, 0])})["action"], [[0.5, -2]])
    np.testing.assert_array_equal(env.action({"action": np.array([2, 1])})["action"], [[1, -0.5]])
    np.testing.assert_array_equal(env.reverse_action({"action": np.float32([[0.6, 5]])})["action"], [1, 2])


@pytest.mark.parametrize(
    ("low", "high", "num_bins", "values"),
    [(0, 10, 4, [0, 3, 7, 10]), (0, 3, 3, [0, 2, 3]), (-3, 0, 3, [-3, -1, 0]), (-2, 2, 5, [-2, -1, 0, 1, 2])],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int64])
def test_bins_of_integers_are_rounded(low: int, high: int, num_bins: int, values: list[int], dtype: Any) -> None:
    """Against exact fractions: the nearest integer, and the larger one of two."""
    env = discretized(spaces.Box(low, high, (1,), dtype), num_bins=num_bins)
    exact = [Fraction(low) + i * Fraction(high - low, num_bins - 1) for i in range(num_bins)]
    assert [floor(value + Fraction(1, 2)) for value in exact] == values
    actions = [env.action({"action": i})["action"] for i in range(num_bins)]
    assert [int(action[0]) for action in actions] == values and actions[0].dtype == dtype
    assert [env.reverse_action({"action": action}) for action in actions] == [{"action": i} for i in range(num_bins)]


def test_all_actions_are_in_the_space_of_the_environment() -> None:
    env = discretized(BOX, num_bins=4)
    env.reset(seed=0)
    for _ in range(20):
        action = env.action_space.sample()
        assert env.env.action_space.contains(env.action(action))
        np.testing.assert_equal(env.reverse_action(env.action(action)), action)


def test_all_sub_steps_with_the_head_are_discretised() -> None:
    env = DiscretizeActionsWrapper.wrap(make_vector_heap_env(), discretization_config={"amount": {"num_bins": 4}})
    env.reset(seed=0)
    for key in ("plan", "work"):
        env.step({"amount": np.array([1, 3])})
        assert env.get_maze_action() == (key, 2)


@pytest.mark.parametrize(
    ("space", "entry", "message"),
    [
        (spaces.Discrete(3), {"num_bins": 2}, r"Discrete\(3\); only a Box"),
        (spaces.Box(0, 1, (1,)), {"num_bins": 1}, "num_bins=1"),
        (spaces.Box(0, 1, (1,)), {"num_bins": 3, "low": -1}, r"low=\[-1.\].* do not fit"),
        (spaces.Box(0, 1, (1,)), {"num_bins": 3, "high": 2}, r"high=\[2.\].* do not fit"),
        (spaces.Box(0, 1, (1,)), {"num_bins": 3, "low": 0.5, "high": 0.5}, "do not fit"),
        (spaces.Box(-np.inf, np.inf, (1,)), {"num_bins": 3, "low": 0}, r"do not fit .*finite bounds"),
        (
            spaces.Box(0, 2, (1,), np.int64),
            {"num_bins": 4},
            "use at most as many bins",
        ),
        (spaces.Box(0, 9, (1,), np.uint8), {"num_bins": 5, "low": 3, "high": 6}, "have the same value"),
    ],
)
def test_bins_that_do_not_fit_the_space_are_refused(space: Any, entry: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        discretized(space, **entry)


@pytest.mark.parametrize(("entry", "message"), [({}, "'num_bins'"), ({"num_bins": 2, "lows": 1}, "'lows'")])
def test_options_are_checked(entry: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"bin_values.*{message}"):
        discretized(BOX, **entry)


def test_heads_that_differ_between_sub_steps_are_refused() -> None:
    env: Any = make_vector_heap_env()
    env._action_spaces["plan"] = spaces.Dict({"amount": spaces.Box(0, 5, (2,))})
    with pytest.raises(ValueError, match=r"\['amount'\].* are not the same in all sub-steps"):
        DiscretizeActionsWrapper.wrap(env, discretization_config={"amount": {"num_bins": 2}})
