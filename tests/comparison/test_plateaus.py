"""Intervals of interquartile means whose kept values are all equal."""

from __future__ import annotations

import numpy as np
import pytest

from maze_pl.comparison.effects import iqm_effects
from maze_pl.comparison.plateaus import iqm_percentile_interval, weighted_iqm
from maze_pl.comparison.two_level import two_level_intervals
from maze_pl.runs.intervals import interquartile_mean


def test_the_interquartile_means_of_resamples_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(0)
    for n in (1, 3, 4, 9, 20):
        values = generator.normal(size=n)
        counts = generator.multinomial(n, np.full(n, 1 / n), 5)
        slow = [interquartile_mean(np.repeat(values, row).tolist()) for row in counts]
        np.testing.assert_allclose(weighted_iqm(values, counts), slow)


def test_missing_values_are_left_out() -> None:
    found = weighted_iqm(np.array([np.nan, 1.0, 3.0]), np.array([[1, 1, 1], [3, 0, 0]]))
    assert found[0] == 2.0 and np.isnan(found[1])


def test_a_plateau_has_an_interval_that_reaches_to_the_rest() -> None:
    values = np.full((1, 10), 500.0)
    values[0, :2] = 0.0  # fewer than a quarter: the interquartile mean is 500
    (interval,) = two_level_intervals([iqm_effects(values)])
    assert interval is not None and interval[0] < 450.0 and interval[1] == 500.0
    slow = np.random.default_rng(1)
    means = [interquartile_mean(slow.choice(values[0], 10).tolist()) for _ in range(4000)]
    assert interval[0] == pytest.approx(np.quantile(means, 0.025), abs=60.0)


def test_a_run_that_differs_from_the_others_widens_the_interval() -> None:
    values = np.full((3, 20), 200.0)
    values[0, :12] = 80.0  # a fifth of all values, from one of three runs
    low, high = iqm_percentile_interval(values, 0.95)
    assert low < 150.0 and high == 200.0


def test_equal_results_have_no_plateau() -> None:
    assert iqm_effects(np.full((2, 9), 5.0)).plateau is None
    assert iqm_effects(np.arange(20.0)[None]).plateau is None
