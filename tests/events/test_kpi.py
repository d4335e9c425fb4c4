from __future__ import annotations

from typing import Any

import pytest

from maze_pl.events import EpisodeEventLog, EventRecord, KpiCalculator


class PieceEvents:
    def replenished(self) -> None: ...

    def discarded(self) -> None: ...


class UsageKpi(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        used = len(episode_event_log.query_events(PieceEvents.replenished))
        return {"usage_per_step": used / len(episode_event_log.step_event_logs)}


REPLENISHED = EventRecord(PieceEvents, PieceEvents.replenished, {}, 0)
DISCARDED = EventRecord(PieceEvents, PieceEvents.discarded, {}, 0)


def logged(*steps: list[EventRecord]) -> EpisodeEventLog:
    log = EpisodeEventLog()
    for step in steps:
        for record in step:
            log.receive(record)
        log.end_step()
    return log


def test_steps_without_events_are_steps_too() -> None:
    log = logged([REPLENISHED, DISCARDED], [], [REPLENISHED], [])
    assert [len(step.events) for step in log.step_event_logs] == [2, 0, 1, 0]
    assert [step.env_time for step in log.step_event_logs] == [0, 1, 2, 3]
    assert UsageKpi().calculate_kpis(log, None) == {"usage_per_step": 0.5}


def test_a_step_that_was_not_completed_counts_once_it_has_events() -> None:
    log = logged([REPLENISHED])
    log.receive(DISCARDED)
    log.receive(DISCARDED)
    assert len(log.step_event_logs) == 2
    log.end_step()
    assert len(log.step_event_logs) == 2


def test_events_are_queried_by_kind_in_a_step_and_in_the_episode() -> None:
    log = logged([REPLENISHED], [DISCARDED, REPLENISHED])
    assert log.query_events([PieceEvents.discarded, PieceEvents.replenished]) == [REPLENISHED, DISCARDED, REPLENISHED]
    assert log.step_event_logs[1].query_events(PieceEvents.discarded) == [DISCARDED]


def test_reset_begins_another_episode() -> None:
    log = logged([REPLENISHED])
    log.receive(REPLENISHED)
    log.reset()
    assert log.query_events(PieceEvents.replenished) == []
    log.end_step()
    assert [step.env_time for step in log.step_event_logs] == [0]


def test_a_calculator_must_calculate() -> None:
    with pytest.raises(TypeError, match="abstract"):
        KpiCalculator()  # type: ignore[abstract]
