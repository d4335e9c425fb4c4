"""Tables for the console, and the order of their columns."""

from __future__ import annotations

import itertools

import pytest

from maze_pl.runs.tables import merged_names, number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (999.96, "1,000"),
        (1234.56, "1,235"),
        (-15693.4, "-15,693"),
        (9999.7, "10,000"),
        (8_765_432.1, "8,765,432"),
        (87_654_321.5, "8.765e+07"),
        (87_654_321, "87,654,321"),
        (float("inf"), "inf"),
        (float("nan"), ""),
    ],
)
def test_numbers_of_thousands_and_millions_are_in_full(value: float, text: str) -> None:
    assert number_text(value) == text


def test_names_of_episodes_that_lack_some_keep_their_order() -> None:
    assert merged_names([]) == []
    assert merged_names([["a", "c"], ["a", "b", "c"], [], ["a", "b", "c", "d"]]) == ["a", "b", "c", "d"]
    assert merged_names([["b"], ["a"], ["a", "b"]]) in (["a", "b"], ["b", "a"])  # no list has told at first


def test_once_a_list_has_all_names_the_order_is_its_own() -> None:
    whole = ["a", "b", "c", "d"]
    for n in range(5):
        for part in itertools.combinations(whole, n):
            assert merged_names([part, whole]) == merged_names([whole, part]) == whole
