"""Batches of episodes in another order, and values of episodes in parts."""

from __future__ import annotations

from itertools import permutations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import (
    EpisodeBatch,
    PendingEpisodes,
    StatColumn,
    fetched_summaries,
    joined_summaries,
    parts_of,
)

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


KEY = ("Topic", "event", None, ())
COLUMNS = {
    "numbers": StatColumn(np.array([0, 2]), np.array([1.0, 2.0])),
    "vectors": StatColumn(np.array([1, 2]), np.arange(5.0), np.array([2, 3])),
    "pairs": StatColumn(np.array([0, 1]), np.arange(6.0).reshape(3, 2), np.array([1, 2])),
    "nothing": StatColumn(np.zeros(0, np.int64), np.zeros(0)),
    "missing": None,
}


@pytest.mark.parametrize("names", list(permutations(COLUMNS, 3)))
def test_episodes_with_numbers_and_with_arrays_are_joined(names: tuple[str, ...]) -> None:
    parts: list[EpisodeBatch] = []
    expected: list[Any] = []
    for name in names:
        column = COLUMNS[name]
        part = batch(0.0, 1.0, 2.0)
        values: list[Any] = [None, None, None]
        if column is not None:
            part.statistics[KEY] = column
            for episode, value in column.per_episode():
                values[episode] = value.tolist() if isinstance(value, np.ndarray) else value
        parts.append(part)
        expected += values
    joined = EpisodeBatch.concatenated(parts)
    assert values_of(joined) == expected
    order = np.random.default_rng(0).permutation(len(joined))[:6]
    assert values_of(joined.chosen(order)) == [expected[place] for place in order.tolist()]
    again = EpisodeBatch.concatenated([joined[:4], joined[4:]])
    assert values_of(again) == expected


def values_of(episodes: EpisodeBatch) -> list[Any]:
    """Values of the statistic, numbers or lists; None where an episode has none."""
    found: list[Any] = [summary.statistics.get(KEY) for summary in EpisodeBatch.from_dict(episodes.to_dict())]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in found]


def test_a_part_whose_values_can_be_stacked_is_stacked() -> None:
    parts = []
    for name in ("pairs", "numbers"):
        parts.append(batch(0.0, 1.0, 2.0))
        parts[-1].statistics[KEY] = COLUMNS[name]  # type: ignore[assignment]
    joined = EpisodeBatch.concatenated(parts)
    assert joined.statistics[KEY].values.shape == (8,)
    pairs, numbers = joined[:3].statistics[KEY], joined[3:].statistics[KEY]
    assert (pairs.values.shape, pairs.shapes) == ((3, 2), None)
    assert (numbers.values.tolist(), numbers.counts, numbers.shapes) == ([1.0, 2.0], None, None)


class Late(PendingEpisodes):
    """Two episodes that note when they are fetched."""

    n_fetched = 0

    def fetched(self) -> EpisodeBatch:
        """Return the episodes."""
        self.n_fetched += 1
        return batch(1.0, 2.0)


def batch(*returns: float) -> EpisodeBatch:
    numbers = np.arange(len(returns))
    return EpisodeBatch(numbers, numbers, numbers, np.array(returns))


def test_joined_episodes_are_pending_if_some_are_and_fetched_when_they_are_read() -> None:
    late = Late()
    joined = joined_summaries([batch(5.0), late, batch()])
    assert isinstance(joined, PendingEpisodes)
    assert late.n_fetched == 0
    again = joined_summaries([joined, [EpisodeSummary({}, 1, 7.0)]])
    assert late.n_fetched == 0
    assert [summary.reward for summary in again] == [5.0, 1.0, 2.0, 7.0]
    assert [summary.reward for summary in joined] == [5.0, 1.0, 2.0]
    assert (len(joined), joined[1].reward, [one.reward for one in joined[1:]]) == (3, 1.0, [1.0, 2.0])
    assert late.n_fetched == 2, "once for each of the two"
    assert isinstance(fetched_summaries(joined), EpisodeBatch)
    assert joined_summaries([late]) is late


def test_thousands_of_joined_episodes_are_fetched() -> None:
    joined = joined_summaries([])
    for _ in range(3000):
        joined = joined_summaries([joined, Late()])
    assert len(joined) == 6000
