"""Batches of episodes in another order, and values of episodes in parts."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.episode_batch import StatColumn, parts_of

COUNTS = st.lists(st.integers(0, 9), max_size=30)


@given(COUNTS, st.integers(1, 12))
def test_parts_cover_all_episodes_and_values_once(counts: list[int], at_once: int) -> None:
    array = np.array(counts, np.int64)
    ends = np.cumsum(array)
    with patch("maze_pl.core.episode_batch._AT_ONCE", at_once):
        parts = list(parts_of(array))
    episodes = [number for part, _ in parts for number in range(part.start, part.stop)]
    assert episodes == list(range(len(counts)))
    for part, place in parts:
        assert place.start == ends[part.start] - array[part.start]
        assert place.stop == ends[part.stop - 1]


@given(COUNTS, st.integers(1, 12), st.randoms(use_true_random=False))
def test_column_in_another_order_has_the_values_of_its_episodes(
    counts: list[int], at_once: int, random: object
) -> None:
    array = np.array(counts, np.int64)
    values = np.arange(int(array.sum()))
    column = StatColumn(np.arange(len(counts)), values, array)
    order = list(range(len(counts)))
    random.shuffle(order)
    rank = np.full(len(counts), -1)
    rank[order] = np.arange(len(order))
    with patch("maze_pl.core.episode_batch._AT_ONCE", at_once):
        ordered = column.ordered(rank, len(order))
    split = np.split(values, np.cumsum(array)[:-1]) if counts else []
    expected = np.concatenate([split[number] for number in order]) if counts else values
    assert ordered.values.tolist() == expected.tolist()
