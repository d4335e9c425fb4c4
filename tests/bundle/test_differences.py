"""Differences of single numbers and actions in the test of an export."""

from __future__ import annotations

import numpy as np
import pytest

from maze_pl.bundle.differences import difference_of_actions, difference_of_numbers
from maze_pl.bundle.errors import ExportError


def test_impossible_options_are_compared_as_such() -> None:
    difference = difference_of_numbers(np.array([-np.inf, -0.5]), np.array([-np.inf, -0.500001]), "the head")
    assert difference == pytest.approx(1e-6)
    for found, expected in (([-np.inf, -0.5], [-90.0, -0.5]), ([-90.0, -0.5], [-np.inf, -0.5]), ([np.inf], [-np.inf])):
        with pytest.raises(ExportError, match="the head differs by"):
            difference_of_numbers(np.array(found), np.array(expected), "the head")


def test_actions_are_compared_relative_to_their_bounds() -> None:
    space = {"type": "box", "shape": [2], "dtype": "float32", "low": 0.0, "high": [1000.0, 1.0]}
    found = difference_of_actions(np.array([0.005, 0.0]), np.zeros(2), "the action", space)
    assert found.largest == pytest.approx(5e-6) and not found.has_near_tie
    for action in ([0.02, 0.0], [0.0, 2e-5]):
        with pytest.raises(ExportError, match="the action differs by 2e-05"):
            difference_of_actions(np.array(action), np.zeros(2), "the action", space)


@pytest.mark.parametrize("steps", [0, 1, -1, 2, -2])
def test_numbers_of_a_coarse_type_may_be_rounded_to_neighbours(steps: int) -> None:
    space = {"low": -1.0, "high": 1.0}
    expected = np.array([-0.75, 0.1, 0.0], np.float16)
    found = expected.copy()
    for _ in range(abs(steps)):
        found = np.nextafter(found, np.float16(np.sign(steps)))
    if abs(steps) < 2:
        difference = difference_of_actions(found, expected, "the action", space)
        assert difference.largest < 1e-6 and not difference.has_near_tie
    else:
        with pytest.raises(ExportError, match="the action differs"):
            difference_of_actions(found, expected, "the action", space)


def test_choices_in_near_ties_may_differ() -> None:
    space = {"type": "multi_discrete", "nvec": [3, 3]}
    found, expected = np.array([1, 2]), np.array([1, 0])
    assert difference_of_actions(found, expected, "the action", space, np.array([False, True])) == (0.0, True)
    assert difference_of_actions(expected, expected, "the action", space, np.array([True, True])) == (0.0, False)
    with pytest.raises(ExportError, match=r"the action is \[1 2\] instead of \[1 0\]"):
        difference_of_actions(found, expected, "the action", space, np.array([True, False]))
