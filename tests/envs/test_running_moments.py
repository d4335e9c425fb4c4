from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.envs.running_moments import RunningMoments, merged_moments, rebased_moments

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


def test_what_stays_the_same_is_never_divided_by_zero() -> None:
    for value in (0.0, 300.0):
        state = begun(value, window=10)
        for _ in range(5000):
            state = merged_moments([gathered(state, [value] * 2)])
        statistics = RunningMoments(state).statistics
        assert statistics["mean"] == [value]
        assert np.float32(statistics["std"]) > 0
