"""Latest transitions of streams are those of a dict that is updated one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.collect.replay.latest_transitions import LatestTransitions

STREAMS = st.lists(st.lists(st.integers(-5, 5), max_size=12), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(begun=st.dictionaries(st.integers(-5, 5), st.integers(0, 99)), batches=STREAMS)
def test_previous_transitions_are_those_of_a_dict(begun: dict[int, int], batches: list[list[int]]) -> None:
    latest, expected, number = LatestTransitions(begun), dict(begun), 100
    for streams in batches:
        numbers = number + np.arange(len(streams))
        number += len(streams)
        found = latest.put(np.array(streams, np.int64), numbers).tolist()
        for stream, its_number, previous in zip(streams, numbers.tolist(), found, strict=True):
            assert previous == expected.get(stream, -1)
            expected[stream] = its_number
        assert latest.state_dict() == expected
        latest = LatestTransitions(latest.state_dict())
