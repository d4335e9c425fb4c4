"""Events of running episodes: the time and memory of a rollout do not grow with the length of episodes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np

from maze_pl.collect.tensors.running_events import EndedEpisodes, FiredEvents, RunningEvents
from maze_pl.events import define_episode_stats, define_epoch_stats, define_stats_grouping, define_step_stats
from maze_pl.events.topics import declarations

N_ENVS, N_ROWS = 200, 20
NONE = np.zeros(0, np.int64)


class Steps:
    """Events of each step."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum)
    @define_stats_grouping("kind")
    def taken(self, kind: str, value: int) -> None:
        """A step was taken."""


def every_act(first_step: int, kind: str = "plain") -> FiredEvents:
    """Events of all environments in all rows, with the number of the environment and of the step as values."""
    env, row = np.divmod(np.arange(N_ENVS * N_ROWS), N_ROWS)
    step = first_step + row
    return FiredEvents([(kind,)], np.zeros_like(env), env, 2 * row + 2, step, {"value": 1000 * step + env})


def running() -> RunningEvents:
    return RunningEvents(declarations(Steps)["taken"], N_ENVS)


def test_earlier_events_of_episodes_that_go_on_are_not_copied() -> None:
    events, peaks = running(), []
    for number in range(120):
        fired = every_act(N_ROWS * number)
        tracemalloc.start()
        assert events.add([fired], EndedEpisodes(NONE, NONE, N_ROWS)) == {}
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # room at least doubles when it is full, so that only some rollouts make it
    assert sorted(peaks[60:])[30] < 2 * sorted(peaks[:20])[10]


def test_episodes_get_the_events_of_all_their_rollouts_in_order() -> None:
    events = running()
    nothing = EndedEpisodes(NONE, NONE, N_ROWS)
    for number in range(3):
        events.add([every_act(N_ROWS * number, "ab"[number % 2])], nothing)
    # environment 7 ends episodes with rows 4 and 9, environment 8 one with row 19
    found: Any = events.add([every_act(60, "a")], EndedEpisodes(np.array([7, 7, 8]), np.array([4, 9, 19]), N_ROWS))
    assert list(found) == [("a",), ("b",)]
    one, other = found["a",], found["b",]
    assert one.episodes.tolist() == [0, 1, 2]
    assert one.counts.tolist() == [45, 5, 60]
    steps = [*range(20), *range(40, 65), *range(65, 70), *range(20), *range(40, 80)]
    assert one.steps.tolist() == steps
    assert one.values["value"].tolist() == [1000 * step + (7 if place < 50 else 8) for place, step in enumerate(steps)]
    assert (other.episodes.tolist(), other.counts.tolist()) == ([0, 2], [20, 20])
    assert len(events.log) == N_ENVS * 4 * N_ROWS - 70 - 80
    last: Any = events.add([], EndedEpisodes(np.array([7]), np.array([0]), N_ROWS))
    assert {labels: of_group.counts.tolist() for labels, of_group in last.items()} == {("a",): [10]}
