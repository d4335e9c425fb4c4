"""Events of one kind in many episodes: types of their values, as events come and go."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.arrays.event_log import EventLog
from maze_pl.events import RewardShareEvents
from maze_pl.events.topics import declarations

N_ENVS = 4


def make_log() -> EventLog:
    return EventLog(declarations(RewardShareEvents)["share"], N_ENVS)


def append(log: EventLog, envs: list[int], values: Any) -> None:
    n = len(envs)
    log.append([("fuel",)], np.zeros(n, np.int64), np.array(envs), np.zeros(n, np.int64), {"value": values})


def end(log: EventLog, envs: list[int]) -> Any:
    """End episodes, and return and forget their values."""
    log.end_episodes(np.array(envs), 0)
    happened = log.happened(np.arange(len(envs)))
    log.drop_ended()
    return happened[("fuel",)].values["value"]


def column(log: EventLog) -> np.ndarray[Any, Any]:
    return log._columns["value value"]


def test_values_are_numbers_again_when_the_last_object_of_another_kind_has_ended() -> None:
    log = make_log()
    append(log, [0, 1], np.array([0.5, 1.5]))
    mixed = np.empty(2, object)
    mixed[:] = [2.5, None]
    append(log, [1, 2], mixed)
    assert column(log).dtype == object
    assert end(log, [0]).tolist() == [0.5]
    assert column(log).dtype == object, "the odd one is in an episode that runs"
    assert end(log, [2]).tolist() == [None]
    assert column(log).dtype == np.float64
    append(log, [3], np.array([4.5]))
    assert end(log, [1, 3]).tolist() == [1.5, 2.5, 4.5]


def test_texts_and_arrays_of_several_shapes_remain_objects() -> None:
    log = make_log()
    append(log, [0, 1], np.array(["a", "bc"]))
    end(log, [0])
    assert column(log).dtype == object and column(log)[log._blocks.running()[0]].tolist() == ["bc"]
    log = make_log()
    append(log, [0], np.ones((1, 2)))
    append(log, [1], np.ones((1, 3)))
    append(log, [2], np.ones((1, 2)))
    end(log, [0])
    assert column(log).dtype == object
    end(log, [1])
    assert column(log).shape[1:] == (2,) and column(log).dtype == np.float64


def test_a_log_has_no_more_rows_than_events() -> None:
    log = make_log()
    append(log, list(range(N_ENVS)), np.ones(N_ENVS))
    assert len(column(log)) == N_ENVS
