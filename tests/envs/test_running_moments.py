from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.envs.running_moments import (
    RunningMoments,
    mean_of_rows,
    merged_moments,
    rebased_moments,
    require_fitting,
)

VALUES = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=8), min_size=1, max_size=4)


def begun(offset: float = 0.0, window: int = 0) -> dict[str, Any]:
    """Moments of two observations, offset - 1 and offset + 1."""
    return RunningMoments.of(2, np.array([offset]), np.array([1.0]), window).state_dict()


def gathered(state: dict[str, Any], values: list[float]) -> dict[str, Any]:
    moments = RunningMoments(state)
    for value in values:
        moments.add(np.array([value], np.float32))
    return moments.state_dict()


def check_moments(state: dict[str, Any], values: list[float]) -> None:
    """Compare with the moments of all values at once."""
    single = np.array(values, np.float32).astype(np.float64)
    assert state["n"] == len(values)
    assert state["n_new"] == 0
    np.testing.assert_allclose(state["mean"], [single.mean()], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state["m2"] / state["n"], [single.var()], rtol=1e-9, atol=1e-6)


def test_moments_of_three_numbers() -> None:
    state = merged_moments([gathered(begun(), [6.0])])
    # of -1, 1 and 6: mean 2, squared differences 9 + 1 + 16
    assert (state["n"], state["mean"].tolist(), state["m2"].tolist()) == (3, [2.0], [26.0])
    np.testing.assert_allclose(RunningMoments(state).statistics["std"], [np.sqrt(26 / 3)], rtol=1e-12)


@given(VALUES)
def test_several_rounds_of_merging_count_every_observation_once(parts: list[list[float]]) -> None:
    state = begun()
    everything = [-1.0, 1.0]
    for _ in range(3):
        state = merged_moments([gathered(state, values) for values in parts])
        everything += [value for values in parts for value in values]
    check_moments(state, everything)


@given(VALUES)
def test_copies_that_are_late_count_every_observation_once(parts: list[list[float]]) -> None:
    current = begun()
    everything = [-1.0, 1.0]
    for _ in range(2):
        began_with = current
        for values in parts:  # all begin with the same moments, and are merged in turn
            rebased = rebased_moments(gathered(began_with, values), current)
            current = merged_moments([rebased])
            everything += values
    check_moments(current, everything)


def test_large_means_cost_no_digits() -> None:
    state = begun(1e6)
    values = [1e6 + 0.25, 1e6 - 0.5, 1e6 + 0.75]
    merged = merged_moments([gathered(state, [value]) for value in values])
    expected = np.var([1e6 - 1, 1e6 + 1, *values])
    np.testing.assert_allclose(merged["m2"] / merged["n"], [expected], rtol=1e-10)


def test_copies_that_begin_with_different_moments_are_not_merged() -> None:
    with pytest.raises(ValueError, match="start from different statistics"):
        merged_moments([begun(), begun(1.0)])


def test_a_window_keeps_mean_and_spread_but_counts_fewer_observations() -> None:
    everything, recent = (merged_moments([gathered(begun(window=size), [6.0, 2.0])]) for size in (0, 3))
    assert (everything["n"], recent["n"]) == (4, 3)
    assert everything["mean"] == recent["mean"] == [2.0]
    np.testing.assert_allclose(recent["m2"], everything["m2"] * 3 / 4)


def test_with_a_window_moments_forget_where_the_agent_was() -> None:
    state = begun(1000.0, window=10)
    for _ in range(200):
        state = merged_moments([gathered(state, [3.0, 5.0])])
    statistics = RunningMoments(state).statistics
    np.testing.assert_allclose(statistics["mean"], [4.0], atol=1e-6)
    np.testing.assert_allclose(statistics["std"], [1.0], atol=1e-3)


def test_what_stays_the_same_keeps_a_hundredth_of_its_first_spread() -> None:
    for value in (0.0, 300.0):
        state = begun(value, window=10)
        for _ in range(500):
            state = merged_moments([gathered(state, [value] * 2)])
        statistics = RunningMoments(state).statistics
        assert (statistics["mean"].tolist(), statistics["std"].tolist()) == ([value], [0.01])
        later = rebased_moments(gathered(state, [value + 1.0]), state)
        np.testing.assert_equal(later["least_std"], [0.01])


def test_what_never_changed_is_not_divided_by_less_than_the_rounding_error_of_its_mean() -> None:
    large = RunningMoments.of(1, np.array([1e9]), np.array([1e-3]), 0)
    assert large.statistics["std"] > 100


def test_rows_that_share_their_moments_count_as_one_observation() -> None:
    moments = RunningMoments.of(1, np.zeros((1, 2)), np.ones((1, 2)), 0)
    moments.add(np.array([[1.0, 0.0], [3.0, 6.0], [5.0, 3.0]], np.float32))
    state = merged_moments([moments.state_dict()])
    # means of the table are 3 and 3, those of its squares 35 / 3 and 15; the first observation has mean 0 and square 1
    assert (state["n"], state["mean"].tolist()) == (2, [[1.5, 1.5]])
    np.testing.assert_allclose(state["m2"] / 2, [[(1 + 35 / 3) / 2 - 2.25, (1 + 15) / 2 - 2.25]])


@pytest.mark.parametrize("size", [(1, 1), (9, 1), (300, 1), (300, 2), (7, 40)])
def test_means_of_rows_are_the_same_for_one_table_and_for_many(size: tuple[int, int]) -> None:
    tables = np.random.default_rng(0).normal(size=(5, *size))
    expected = [mean_of_rows(table, (1, size[1])) for table in tables]
    np.testing.assert_equal(mean_of_rows(tables, (1, size[1])), np.stack(expected))
    np.testing.assert_allclose(expected, tables.mean(1, keepdims=True), atol=1e-12)
    assert mean_of_rows(tables, size) is tables


def test_statistics_that_do_not_fit_are_named() -> None:
    state = begun()
    require_fitting({"one": (1,)}, {"one": state}, "Wrapper")
    lacking = {"mean": 0.0, "std": 1.0}
    for shapes, moments, message in (
        ({"other": (1,)}, state, r"^Wrapper: \['one'\] are not normalised; \['other'\] are$"),
        ({"one": (6,)}, state, r"^Wrapper: observation 'one': statistic 'mean' has shape \(1,\), not \(6,\)$"),
        ({"one": (1,)}, {**state, "sum": 0.0}, r"^Wrapper: observation 'one': statistic 'sum' has shape \(\), not"),
        ({"one": (1,)}, lacking, r"^Wrapper: observation 'one': its statistics lack \['n', .*; take them from a run"),
    ):
        with pytest.raises(ValueError, match=message):
            require_fitting(shapes, {"one": moments}, "Wrapper")
