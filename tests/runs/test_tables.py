"""Tables for the console, and the order of their columns."""

from __future__ import annotations

import itertools

from maze_pl.runs.tables import merged_names


def test_names_of_episodes_that_lack_some_keep_their_order() -> None:
    assert merged_names([]) == []
    assert merged_names([["a", "c"], ["a", "b", "c"], [], ["a", "b", "c", "d"]]) == ["a", "b", "c", "d"]
    assert merged_names([["b"], ["a"], ["a", "b"]]) in (["a", "b"], ["b", "a"])  # no list has told at first


def test_once_a_list_has_all_names_the_order_is_its_own() -> None:
    whole = ["a", "b", "c", "d"]
    for n in range(5):
        for part in itertools.combinations(whole, n):
            assert merged_names([part, whole]) == merged_names([whole, part]) == whole
