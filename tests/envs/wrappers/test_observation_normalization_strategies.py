from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs.wrappers import (
    MeanZeroStdOneObservationNormalizationStrategy as MeanZeroStdOne,
)
from maze_pl.envs.wrappers import (
    ObservationNormalizationStrategy,
)
from maze_pl.envs.wrappers import (
    RangeZeroOneObservationNormalizationStrategy as RangeZeroOne,
)

PAIR = spaces.Box(-100, 100, (2,), np.float32)
SAMPLES = np.array([[0.0, 10.0], [2.0, 10.0], [4.0, 40.0]])


def test_mean_and_deviation_of_each_element() -> None:
    strategy = MeanZeroStdOne(PAIR, axis=0)
    strategy.set_normalization_stats(strategy.estimate_stats(SAMPLES))
    statistics = strategy.get_normalization_stats()
    np.testing.assert_allclose(statistics["mean"], [2.0, 20.0])
    np.testing.assert_allclose(statistics["std"], [np.sqrt(8 / 3), np.sqrt(200)])
    normalized = np.stack([strategy.normalize(sample.astype(np.float32)) for sample in SAMPLES])
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(normalized.std(axis=0), 1, atol=1e-6)
    assert normalized.dtype == np.float32


def test_without_axis_all_elements_share_their_statistics() -> None:
    strategy = MeanZeroStdOne(PAIR)
    statistics = strategy.estimate_stats(SAMPLES)
    assert statistics["mean"].shape == ()
    assert statistics["mean"] == 11.0
    assert RangeZeroOne(PAIR).estimate_stats(SAMPLES) == {"min": 0.0, "max": 40.0}


def test_axes_inside_the_observation_can_be_left_out() -> None:
    image = spaces.Box(0, 255, (2, 3), np.uint8)
    strategy = RangeZeroOne(image, axis=[0, 2])
    samples = np.arange(12, dtype=np.float64).reshape(2, 2, 3)
    strategy.set_normalization_stats(strategy.estimate_stats(samples))
    np.testing.assert_array_equal(strategy.get_normalization_stats()["min"], [[0], [3]])
    np.testing.assert_array_equal(strategy.get_normalization_stats()["max"], [[8], [11]])
    observation = np.array([[0, 4, 8], [3, 7, 11]], np.uint8)
    np.testing.assert_allclose(strategy.normalize(observation), [[0, 0.5, 1], [0, 0.5, 1]])


def test_range_of_bytes_goes_to_zero_and_one() -> None:
    strategy = RangeZeroOne(spaces.Box(0, 255, (3,), np.uint8))
    strategy.set_normalization_stats({"min": 0, "max": 255})
    np.testing.assert_allclose(strategy.normalize(np.array([0, 51, 255], np.uint8)), [0, 0.2, 1], rtol=1e-6)


@pytest.mark.parametrize("value", [0.1, 0.0, -7e5])
def test_what_is_constant_is_only_shifted(value: float) -> None:
    samples = np.full((1000, 2), np.float32(value)).astype(np.float64)
    for strategy in (MeanZeroStdOne(PAIR, axis=0), RangeZeroOne(PAIR, axis=0), MeanZeroStdOne(PAIR)):
        strategy.set_normalization_stats(strategy.estimate_stats(samples))
        np.testing.assert_allclose(strategy.normalize(samples[0].astype(np.float32)), 0, atol=1e-6)
        np.testing.assert_allclose(strategy.normalize(np.float32(value) + np.ones(2, np.float32)), 1, atol=0.1)


def test_small_spread_is_no_constant() -> None:
    strategy = MeanZeroStdOne(PAIR, axis=0)
    assert strategy.estimate_stats(1e-12 * SAMPLES)["std"][0] == pytest.approx(1e-12 * np.sqrt(8 / 3))


def test_spread_that_float32_cannot_hold_is_a_constant() -> None:
    strategy = MeanZeroStdOne(spaces.Box(-1, 1, (2,), np.float64), axis=0)
    strategy.set_normalization_stats(strategy.estimate_stats(1e-60 * SAMPLES))
    np.testing.assert_allclose(strategy.normalize(np.array([0.5, 0.5])), 0.5)


def test_values_that_are_not_finite_are_clipped_or_stay_what_they_are() -> None:
    values = np.array([np.inf, -np.inf, np.nan], np.float32)
    for kind, statistics in ((MeanZeroStdOne, {"mean": 1, "std": 2}), (RangeZeroOne, {"min": 0, "max": 9})):
        for clip_range, expected in (([-3, 3], [3, -3, np.nan]), ([None, None], values)):
            strategy = kind(spaces.Box(-np.inf, np.inf, (3,)), clip_range=clip_range)
            strategy.set_normalization_stats(statistics)
            np.testing.assert_array_equal(strategy.normalize(values), expected)


def test_clipping_and_the_space_it_makes() -> None:
    strategy = MeanZeroStdOne(PAIR, clip_range=[-1, None])
    strategy.set_normalization_stats({"mean": 0.0, "std": 1.0})
    np.testing.assert_array_equal(strategy.normalize(np.array([-5, 5], np.float32)), [-1, 5])
    assert strategy.normalized_space() == spaces.Box(-1, np.inf, (2,), np.float32)
    assert MeanZeroStdOne(PAIR).normalized_space() == spaces.Box(-np.inf, np.inf, (2,), np.float32)


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        ({"mean": 0.0}, "needs the statistics"),
        ({"mean": 0.0, "std": 1.0, "median": 2.0}, "needs the statistics"),
        ({"mean": [1.0, 2.0, 3.0], "std": 1.0}, r"shape \(3,\)"),
        ({"mean": [[1.0, 2.0]], "std": 1.0}, r"shape \(1, 2\)"),
        ({"mean": 0.0, "std": 0.0}, "must be positive"),
        ({"mean": np.nan, "std": 1.0}, "not finite"),
        ({"mean": 1e39, "std": 1.0}, "'mean' is not finite: 1e\\+39"),  # in float32
        ({"mean": 0.0, "std": 1e-50}, "must be positive"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(statistics: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MeanZeroStdOne(PAIR).set_normalization_stats(statistics)


def test_a_minimum_above_the_maximum_is_refused() -> None:
    strategy = RangeZeroOne(PAIR)
    with pytest.raises(ValueError, match="above the maximum"):
        strategy.set_normalization_stats({"min": 1.0, "max": 0.0})
    with pytest.raises(ValueError, match="infinitely far below"):
        strategy.set_normalization_stats({"min": -3e38, "max": 3e38})
    assert not strategy.statistics


def test_statistics_without_a_value_are_refused() -> None:
    class Identity(ObservationNormalizationStrategy):
        def estimate_stats(self, observations: Any) -> Any:
            return {}

        def normalize_value(self, value: Any) -> Any:
            return value

    with pytest.raises(ValueError, match="cannot normalise"):
        Identity(PAIR).set_normalization_stats({})


@pytest.mark.parametrize(
    "arguments",
    [
        {"axis": 1},
        {"axis": [1, 2]},
        {"axis": [0, 2]},
        {"axis": [0, -1]},
        {"clip_range": [1, 0]},
        {"clip_range": [1]},
        {"clip_range": [np.nan, 1]},
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        MeanZeroStdOne(PAIR, **arguments)
