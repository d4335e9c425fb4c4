"""Means, interquartile means and their intervals against tables, hand-computed numbers and slow references."""

from __future__ import annotations

import math
import random
import statistics

import mpmath
import pytest

from maze_pl.runs.intervals import (
    bootstrap_interval,
    estimate,
    interquartile_mean,
    t_interval,
    t_probability,
    t_quantile,
)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_printed_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 4.0, 50.0])
def test_probabilities_are_the_integral_of_the_density(t: float, degrees: int) -> None:
    norm = mpmath.gamma((degrees + 1) / 2) / (mpmath.sqrt(degrees * mpmath.pi) * mpmath.gamma(degrees / 2))
    integral = mpmath.quad(lambda x: norm * (1 + x * x / degrees) ** (-(degrees + 1) / 2), [0, t / 8, t / 2, t])
    assert t_probability(t, degrees) == pytest.approx(float(2 * integral), abs=1e-8)


def test_the_interval_of_a_mean_by_hand() -> None:
    low, high = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451 * math.sqrt(2.5) / math.sqrt(5)
    assert (low, high) == (pytest.approx(3 - half), pytest.approx(3 + half))


def test_intervals_contain_the_true_mean_as_often_as_they_should() -> None:
    draw = random.Random(0)
    n_hits = 0
    for _ in range(2000):
        low, high = t_interval([draw.gauss(5.0, 2.0) for _ in range(4)])
        n_hits += low <= 5.0 <= high
    assert 0.935 < n_hits / 2000 < 0.965


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([3.0, 1.0, 8.0], 4.0),
        ([100.0, 1.0, 2.0, -50.0], 1.5),
        ([5.0, 1.0, 2.0, 3.0, 900.0], 10.0 / 3.0),
        ([8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 4.5),
    ],
)
def test_the_interquartile_mean_leaves_out_the_outer_quarters(values: list[float], expected: float) -> None:
    assert interquartile_mean(values) == pytest.approx(expected)


def test_the_bootstrap_agrees_with_a_slow_one() -> None:
    values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0]
    draw = random.Random(1)
    means = sorted(interquartile_mean(draw.choices(values, k=6)) for _ in range(20_000))
    low, high = bootstrap_interval(values)
    assert low == pytest.approx(means[500], abs=0.15)
    assert high == pytest.approx(means[19_500], abs=0.15)
    assert bootstrap_interval(values) == (low, high)


def test_an_estimate_of_one_value_has_no_intervals() -> None:
    found = estimate([3.0])
    assert (found.n, found.mean, found.iqm) == (1, 3.0, 3.0)
    assert found.mean_interval is None and found.iqm_interval is None
    assert estimate([1.0, 2.0, 6.0]).mean == statistics.fmean([1.0, 2.0, 6.0])
    with pytest.raises(ValueError, match="at least one number is needed"):
        estimate([])


def test_very_large_numbers_have_the_estimate_of_smaller_ones() -> None:
    values = [2.0, 1.0, 7.0, 4.0, 5.0, 3.0]
    small, large = estimate(values), estimate([value * 2.0**1020 for value in values])
    assert large.mean == pytest.approx(small.mean * 2.0**1020)
    assert large.iqm == pytest.approx(small.iqm * 2.0**1020)
    assert small.mean_interval is not None and large.mean_interval is not None
    assert small.iqm_interval is not None and large.iqm_interval is not None
    assert large.mean_interval == pytest.approx([end * 2.0**1020 for end in small.mean_interval])
    assert large.iqm_interval == pytest.approx([end * 2.0**1020 for end in small.iqm_interval])
