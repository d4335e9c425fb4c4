"""Records with the same id: which of them are parts of others, compared with a look at each pair."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Choices, Parts
from tests.datasets.episodes_of_acts import Act, episode, make_spec


def record(acts: list[tuple[str, int, int]], terminated: bool, number: int = 0) -> SpacesTrajectoryRecord:
    """An episode of acts: sub-step, agent and choice of each."""
    played = [Act(key, agent, time) for time, (key, agent, _) in enumerate(acts)]
    made = episode(played, make_spec(2, 2), number=number, terminated=terminated)
    for key in "ab":
        made.action[key]["choice"] = np.array([choice for other, _, choice in acts if other == key], np.int64)
    return made


ACTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=4)


@pytest.mark.parametrize("max_memory", [0, 1])
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(ACTS, st.booleans(), st.integers(0, 1)), max_size=8))
def test_parts_are_cut_episodes_with_which_a_longer_one_begins(max_memory: int, played: list[Any]) -> None:
    expected = []
    for place, (acts, terminated, number) in enumerate(played):
        others = [other for other, _, its_number in played if its_number == number and len(other) > len(acts)]
        if not terminated and any(other[: len(acts)] == acts for other in others):
            expected.append(place)
    with closing(Parts(max_memory)) as parts:
        for acts, terminated, number in played:
            parts.add(Choices.of(record(acts, terminated, number)))
        assert parts.find() == expected


def test_an_episode_is_part_of_itself_and_of_a_longer_one_if_it_was_cut() -> None:
    acts = [("a", 0, 1), ("b", 1, 0), ("a", 1, 1)]
    whole = Choices.of(record(acts, True))
    for n_acts, terminated in itertools.product((1, 2, 3), (False, True)):
        part = Choices.of(record(acts[:n_acts], terminated))
        assert part.is_part_of(whole) == (n_acts == 3 or not terminated)
        assert (part.identity() == whole.identity()) == (n_acts == 3)
    for others in ([("a", 0, 1), ("b", 0, 0)], [("a", 0, 1), ("b", 1, 1)], [("b", 0, 1)]):
        assert not Choices.of(record(others, False)).is_part_of(whole)
    assert not Choices.of(record(acts[:2], False, number=1)).is_part_of(whole)
