"""Sums and means of ordinary, very large and infinite numbers."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.exact_sums import exact_mean, exact_sum


@given(st.lists(st.floats(-1e200, 1e200), min_size=1, max_size=20))
def test_sums_and_means_are_those_of_fractions(values: list[float]) -> None:
    total = sum(map(Fraction, values))
    assert exact_sum(values) == float(total)
    assert exact_mean(values) == pytest.approx(float(total / len(values)))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_means_lie_between_the_numbers(values: list[float]) -> None:
    mean = exact_mean(values)
    assert min(values) <= mean <= max(values) or mean == pytest.approx(min(values), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([1e308, 1.5e308], math.inf, 1.25e308),
        ([sys.float_info.max] * 3, math.inf, sys.float_info.max),
        ([-sys.float_info.max, -1.7e308], -math.inf, -sys.float_info.max / 2 - 0.85e308),
        ([math.inf, -math.inf, 1.0], math.nan, math.nan),
        ([*[1e308] * 10, math.inf, -math.inf], math.nan, math.nan),
        ([*[1e308] * 10, -math.inf], -math.inf, -math.inf),
        ([1e308, 1e308, -1.5e308], 5e307, 5e307 / 3),
        ([*[1e308] * 10, math.nan], math.nan, math.nan),
        ([math.inf, 1.0], math.inf, math.inf),
        ([math.nan, 1.0], math.nan, math.nan),
    ],
)
def test_numbers_without_an_ordinary_sum_have_a_result(values: list[float], total: float, mean: float) -> None:
    assert exact_sum(values) == pytest.approx(total, nan_ok=True)
    assert exact_mean(values) == pytest.approx(mean, nan_ok=True)
