from __future__ import annotations

import pickle

import numpy as np
import pytest

from maze_pl.events import Histogram, histogram


def test_histogram_counts_each_value() -> None:
    result = histogram([2, 0, 2, 2, 1])
    np.testing.assert_array_equal(result.values, [0, 1, 2])
    np.testing.assert_array_equal(result.counts, [1, 1, 3])
    assert (result.count, result.mean) == (5, 7 / 5)


def test_histogram_prints_as_count_and_mean() -> None:
    result = histogram([0] * 140 + [1] * 141)
    assert str(result) == "[len:281, μ:0.5]"
    assert repr({"action": result}) == "{'action': [len:281, μ:0.5]}"


def test_histogram_takes_arrays_of_any_and_of_different_shapes() -> None:
    assert histogram(np.ones((3, 2))).count == 6
    assert histogram([np.zeros((2, 2)), np.ones(4)]) == histogram([0.0] * 4 + [1.0] * 4)


def test_histogram_of_booleans_has_a_mean() -> None:
    assert histogram([True, False, True, True]).mean == 0.75


def test_histogram_of_nothing_is_safe() -> None:
    result = histogram([])
    assert (result.count, result.mean, str(result)) == (0, 0.0, "[len:0, μ:0.0]")


def test_histogram_survives_infinities() -> None:
    assert np.isnan(histogram([np.inf, -np.inf]).mean)


def test_histograms_are_equal_by_content_and_can_be_pickled() -> None:
    one = histogram([1.5, 2.5])
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != Histogram(np.array([1.5, 2.5]), np.array([1, 2]))
    assert one != "[len:2, μ:2.0]"


@pytest.mark.parametrize("values", [["left", "right"], [None, 1], [object()]])
def test_histogram_of_other_things_than_numbers_is_refused(values: list[object]) -> None:
    with pytest.raises(TypeError, match="expected numbers, got values of dtype"):
        histogram(values)
