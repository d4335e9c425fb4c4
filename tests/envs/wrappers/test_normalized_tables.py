"""Observations that running statistics leave as they are, and tables whose rows share them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.envs.wrappers import RunningObservationNormalizationWrapper
from tests.envs.scripted import Scripted
from tests.envs.structured_example import make_heap_env

KIND = RunningObservationNormalizationWrapper


class Items(Scripted):
    """A set of three items with two columns, its mask, and flags."""

    def __init__(self) -> None:
        super().__init__([1.0])
        self.observation_space = spaces.Dict(
            {
                "points": spaces.Box(0, 1000, (3, 2), np.float32),
                "exists": spaces.Box(0, 1, (3,), np.float32),
                "flags": spaces.Box(0, 1, (2,), np.int8),
                "speed": spaces.Box(-1, 1, (1,), np.float32),
            }
        )

    def _observe(self) -> dict[str, Any]:
        points = np.array([[100, 900], [400, 500], [100, 400]], np.float32)
        exists, flags = np.array([1, 1, 0], np.float32), np.array([0, 1], np.int8)
        return {"points": points, "exists": exists, "flags": flags, "speed": np.array([0.5], np.float32)}


def items(**options: Any) -> KIND:
    env = KIND.wrap(GymMazeEnv(Items()), **options)
    env.estimate(20, seed=0)
    return env


def test_numbers_within_zero_and_one_stay_as_they_are() -> None:
    env = items()
    assert env.strategies.keys() == {"points", "speed"}
    assert env.observation_spaces_dict[0]["exists"] == Items().observation_space["exists"]
    observation = env.reset()[0]
    np.testing.assert_equal([observation["exists"], observation["flags"]], [[1, 1, 0], [0, 1]])


def test_bounds_of_all_sub_steps_tell_whether_numbers_stay_as_they_are() -> None:
    class Wider(Wrapper):
        @property
        def observation_spaces_dict(self) -> dict[str, spaces.Dict]:
            highest = {"plan": 1, "work": 2}
            return {key: spaces.Dict({"share": spaces.Box(0, high, (2,))}) for key, high in highest.items()}

    assert KIND(Wider(make_heap_env())).strategies.keys() == {"share"}


def test_rows_share_their_statistics_so_that_their_order_means_nothing() -> None:
    env = items(shared_rows=["points"], weight=2)
    points = Items()._observe()["points"]
    mean, std = points.mean(0, dtype=np.float64), points.std(0, dtype=np.float64)
    np.testing.assert_allclose(env.get_normalization_statistics()["points"]["mean"], [mean])
    expected = (points - mean) / std
    order = [2, 0, 1]
    np.testing.assert_allclose(env.observation({"points": points[order]})["points"], expected[order], rtol=1e-5)
    env.reset()
    env.load_shared_state(env.merge_shared_states([env.shared_state()]))
    state = env.shared_state()["points"]
    assert (state["n"], state["mean"].shape, state["least_std"].shape) == (3, (1, 2), (1, 2))
    np.testing.assert_allclose(state["m2"] / 3, [std**2])
    assert not np.allclose(items().reset()[0]["points"], expected), "otherwise, each row has separate ones"
    given = items(shared_rows=["points"], statistics={"points": {"mean": mean, "std": 200.0}})
    np.testing.assert_allclose(given.reset()[0]["points"], (points - mean) / 200, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shared_rows": ["point"]}, r"shared_rows names 'point', but the observations are \['exists', .*'speed'\]"),
        ({"shared_rows": ["speed"]}, r"shared_rows names 'speed' of shape \(1,\), which has no rows"),
        ({"shared_rows": ["exists"]}, r"shared_rows names 'exists', .* not normalised: it has bounds within \[0, 1\]"),
        (
            {"shared_rows": ["points"], "exclude": ["points"]},
            "shared_rows names 'points', which is not normalised: it is in exclude",
        ),
        (
            {"shared_rows": ["points"], "statistics": {"points": {"mean": np.zeros((3, 2)), "std": 1.0}}},
            r"observation 'points': .*\(3,2\)",
        ),
    ],
)
def test_rows_that_cannot_share_statistics_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^RunningObservationNormalizationWrapper: {message}"):
        KIND.wrap(GymMazeEnv(Items()), **options)


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Box(0, 255, (3, 2), np.uint8), "consists of bytes or has three dimensions or more, as images do"),
        (spaces.Box(-1, 1, (3, 2, 2)), "consists of bytes or has three dimensions or more, as images do"),
        (spaces.MultiDiscrete([3, 2]), "is a MultiDiscrete, not a Box"),
    ],
)
def test_the_reason_why_rows_are_not_normalised_is_named(space: spaces.Space[Any], reason: str) -> None:
    simulation = Items()
    simulation.observation_space = spaces.Dict({"rows": space})
    with pytest.raises(ValueError, match=f"shared_rows names 'rows', which is not normalised: it {reason}"):
        KIND.wrap(GymMazeEnv(simulation), shared_rows=["rows"])


@pytest.mark.parametrize("option", ["exclude", "shared_rows"])
def test_a_single_name_is_refused_where_a_list_is_expected(option: str) -> None:
    message = rf"^RunningObservationNormalizationWrapper: {option}='points' must be a list of names: \['points'\]"
    with pytest.raises(TypeError, match=message):
        KIND.wrap(GymMazeEnv(Items()), **{option: "points"})
