"""Statistics, records, raw logs and KPIs agree on what happened in a decision, whatever wrappers make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs import StateTrajectoryRecord, StructuredEnv, Wrapper, wrappers_of
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    LogStatsWrapper,
    RandomResetWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.events import BaseEnvEvents, EpisodeEventLog, EventLogWriter, EventRecord, KpiCalculator
from maze_pl.events.topics import ContinuousActionEvents, DiscreteActionEvents
from tests.envs.line import LineEvents, make_line_env
from tests.envs.split_steps import N_STEPS, BidFirstWrapper, make_auction_env
from tests.envs.wrappers.cases import CASES, build, with_dicts

ACTIONS = (DiscreteActionEvents, ContinuousActionEvents)


class KeepsTheLog(KpiCalculator):
    """Keeps the events by environment step, without the actions, which only the statistics know."""

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        self.steps = by_step(episode_event_log)
        self.n_actions = len(episode_event_log.query_events([topic.action for topic in ACTIONS]))
        return {}


class Kept(EventLogWriter):
    """Keeps the events of the last episode that began."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []
        self.started = 0.0

    def write(self, episode_id: str, record: EventRecord) -> None:
        if self.pubsub.context.episode_started != self.started:
            self.started, self.times = self.pubsub.context.episode_started, []
        self.times.append(record.env_time)


def by_step(log: EpisodeEventLog) -> list[list[str]]:
    return [[one.event.__name__ for one in step.events if one.topic not in ACTIONS] for step in log.step_event_logs]


def watched(env: Any) -> tuple[LogStatsWrapper, KeepsTheLog, Kept]:
    """Everything that watches, around an environment."""
    calculator, writer = KeepsTheLog(), Kept()
    env.core_env.get_kpi_calculator = lambda: calculator
    env = TrajectoryRecordingWrapper.wrap(EventLogsWrapper.wrap(env, writer=writer), n_episodes=1)
    return LogStatsWrapper.wrap(env), calculator, writer


def play(env: StructuredEnv, seed: int, n_acts: int = 12, choose: Callable[[], Any] | None = None) -> int:
    """Number of acts until the episode ends or is given up."""
    env.reset(seed=seed)
    for act in range(n_acts):
        result = env.step(env.action_space.sample() if choose is None else choose())
        if result[2] or result[3]:
            return act + 1
    env.close_episode()  # type: ignore[attr-defined]
    return n_acts


@pytest.mark.parametrize("case", CASES, ids=[f"{wrapper.__name__}-{name}" for wrapper, name in CASES])
def test_statistics_records_and_logs_agree_on_an_episode_in_any_wrapper(case: tuple[type[Wrapper], str]) -> None:
    env, calculator, writer = watched(with_dicts(build(*case)))
    for seed in range(2):
        n_acts = play(env, seed)
        (summary,) = env.drain_episode_summaries()
        (record,) = env.trajectories
        steps = by_step(record.event_log())
        assert steps == calculator.steps
        times = [time for time, step in enumerate(steps) for _ in step]
        assert writer.times == times
        assert summary.env_steps <= len(steps) <= summary.env_steps + 1  # the last one may not be complete
        assert len(record.steps) == n_acts
        n_heads = Counter(len(env.action_spaces_dict[key].spaces) for key in env.action_spaces_dict)
        assert calculator.n_actions == n_acts * max(n_heads)
        rewards = [one.attributes["value"] for one in record.event_log().query_events(BaseEnvEvents.reward)]
        assert sum(rewards) == pytest.approx(summary.reward)


class Twice(Wrapper):
    """A user's wrapper: does nothing after each decision."""

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        if result[2] or result[3]:
            return result
        observation, reward, *rest = self.env.step({"amount": 0})
        return (observation, result[1] + reward, *rest)


class WaitsFirst(Wrapper):
    """A user's wrapper: does nothing before each decision, and says so."""

    decided: Any = None

    def step(self, action: Any) -> Any:
        waited = self.env.step({"amount": 0})
        observation, reward, *rest = self.env.step(action)
        self.decided = self.env.get_maze_action()
        return (observation, waited[1] + reward, *rest)

    def get_maze_action(self) -> Any:
        return self.decided


def skipping(env: StructuredEnv) -> Wrapper:
    return StepSkipWrapper.wrap(env, n_steps=2, skip_mode="noop")


@pytest.mark.parametrize("wrap", [skipping, Twice.wrap, WaitsFirst.wrap])
def test_a_record_holds_the_decision_and_what_came_of_all_its_steps(wrap: Any) -> None:
    env, calculator, _ = watched(wrap(make_auction_env()))
    play(env, seed=0, choose=lambda: {"amount": 3})
    (record,) = env.trajectories
    assert [step.maze_action for step in record.steps] == [3, 3, 3]
    assert [step.reward for step in record.steps] == [3.0, 3.0, 3.0]
    assert [step.env_time for step in record.steps] == [0, 2, 4]
    assert [step.maze_state for step in record.steps] == [0, 3, 6]
    assert [len(step.events) for step in record.steps] == [4, 4, 4]
    assert by_step(record.event_log()) == calculator.steps == [["sold", "reward"]] * N_STEPS


def test_a_sub_step_that_only_a_wrapper_knows_is_part_of_the_decision() -> None:
    env, calculator, _ = watched(BidFirstWrapper.wrap(make_auction_env()))
    env.reset(seed=0)
    for amount in range(1, 4):
        env.step({"price": 1})
        env.step({"amount": amount})
    env.close_episode()
    (record,) = env.trajectories
    assert [step.maze_action for step in record.steps] == [1, 2, 3]
    assert [step.env_time for step in record.steps] == [0, 1, 2]
    assert by_step(record.event_log()) == calculator.steps == [["bid", "sold", "reward"]] * 3


def test_kpis_of_a_record_are_those_of_the_statistics() -> None:
    for make in (skipping, lambda env: RandomResetWrapper(env, 2, 2), BidFirstWrapper.wrap):
        env = LogStatsWrapper.wrap(TrajectoryRecordingWrapper.wrap(make(make_auction_env())))
        play(env, seed=1)
        (summary,) = env.drain_episode_summaries()
        (record,) = env.trajectories
        calculator = env.get_kpi_calculator()
        assert calculator is not None
        assert calculator.calculate_kpis(record.event_log(), record.last_maze_state) == summary.kpis
        assert summary.kpis["busy_steps"] == summary.env_steps == N_STEPS


def test_step_statistics_are_those_of_environment_steps() -> None:
    env = LogStatsWrapper.wrap(StepSkipWrapper.wrap(make_auction_env(), n_steps=3))
    play(env, seed=0, choose=lambda: {"amount": 2})
    (summary,) = env.drain_episode_summaries()
    sold = {key[2]: value for key, value in summary.statistics.items() if key[1] == "sold"}
    assert sold == {"most": 2, "total": 12}  # 2 in each of six steps, and not 6 in each of two decisions


def test_an_end_that_a_wrapper_makes_alone_is_that_of_the_last_decision() -> None:
    class NoHighPrices(BidFirstWrapper):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            if self.has_bid and action["price"] == 3:
                return observation, -5.0, True, False, info
            return observation, reward, terminated, truncated, info

    env, _, _ = watched(NoHighPrices.wrap(make_auction_env()))
    env.reset(seed=0)
    for action in ({"price": 1}, {"amount": 2}, {"price": 3}):
        env.step(action)
    (record,) = env.trajectories
    assert [(step.terminated, step.reward, len(step.events)) for step in record.steps] == [(True, 7.0, 4)]


def test_events_are_recorded_as_they_were_when_they_were_fired() -> None:
    env = TrajectoryRecordingWrapper.wrap(StepSkipWrapper.wrap(make_line_env(goal=4), n_steps=4))
    env.reset(seed=0)
    env.step({"stride": 0})
    moved = env.trajectories[0].event_log().query_events(LineEvents.moved)
    assert [one.attributes["trail"] for one in moved] == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("start", [0, 100])
def test_a_clock_that_does_not_begin_at_zero_counts_the_steps_of_the_episode(start: int) -> None:
    env, calculator, writer = watched(TimeLimitWrapper.wrap(make_auction_env(start), max_episode_steps=4))
    for _ in range(2):
        assert play(env, seed=0, choose=lambda: {"amount": 1}) == 4
        (summary,) = env.drain_episode_summaries()
        assert (summary.env_steps, env.get_env_time(), env.core_env.get_env_time()) == (4, 4, start + 4)
        assert calculator.steps == by_step(env.trajectories[0].event_log()) == [["sold", "reward"]] * 4
        assert writer.times == [time for time in range(start, start + 4) for _ in range(2)]
    skipped, calculator, _ = watched(RandomResetWrapper(skipping(make_auction_env(start)), 2, 2))
    assert play(skipped, seed=0, choose=lambda: {"amount": 1}) == 2
    assert calculator.steps == by_step(skipped.trajectories[0].event_log()) == [["sold", "reward"]] * N_STEPS
    assert skipped.drain_episode_summaries()[0].env_steps == N_STEPS


def n_actions(summary: EpisodeSummary) -> int:
    return sum(len(np.atleast_1d(value)) for key, value in summary.statistics.items() if key[1] == "action")


def test_statistics_are_kept_by_all_that_are_nested() -> None:
    inner = LogStatsWrapper.wrap(make_auction_env(), logging_prefix="inner")
    outer = LogStatsWrapper.wrap(StepSkipWrapper.wrap(inner, n_steps=2), logging_prefix="outer")
    for seed in range(2):
        play(outer, seed)
    own, further_in = outer.drain_episode_summaries(), inner.drain_episode_summaries()
    for one, other in zip(own, further_in, strict=True):
        assert (one.reward, one.env_steps, one.kpis) == (other.reward, other.env_steps, other.kpis)
        assert one.env_steps == N_STEPS
        assert one.reward > 0
        assert [n_actions(summary) for summary in (one, other)] == [3, 6]


def test_an_episode_that_is_ended_around_statistics_counts_in_them_too() -> None:
    inner = LogStatsWrapper.wrap(make_auction_env())
    outer = LogStatsWrapper.wrap(TimeLimitWrapper.wrap(inner, max_episode_steps=2))
    play(outer, seed=0)
    (one,), (other,) = outer.drain_episode_summaries(), inner.drain_episode_summaries()
    assert (one.env_steps, one.kpis) == (other.env_steps, other.kpis)
    assert one.kpis["n_steps"] == 2


def test_statistics_are_kept_around_a_list_of_wrappers_that_has_its_own_further_in() -> None:
    env = make_wrapped(make_auction_env, [LogStatsWrapper, partial(TimeLimitWrapper, max_episode_steps=2)])
    assert [type(one) for one in wrappers_of(env)] == [LogStatsWrapper, TimeLimitWrapper, LogStatsWrapper]
    play(env, seed=0)
    assert [summary.env_steps for summary in env.drain_episode_summaries()] == [2]


def test_attempts_that_are_dropped_are_nobodys_around_nested_statistics() -> None:
    inner = LogStatsWrapper.wrap(make_auction_env())

    class TriesTwice(Wrapper):
        def reset(self, **options: Any) -> Any:
            self.env.reset(**options)
            self.env.step({"amount": 3})
            self.env.pubsub.discard()
            return self.env.reset(**options)

    outer = LogStatsWrapper.wrap(TriesTwice.wrap(inner))
    play(outer, seed=0, choose=lambda: {"amount": 1})
    assert [summary.reward for summary in outer.drain_episode_summaries()] == [6.0]


def test_a_record_without_steps_has_no_events() -> None:
    assert StateTrajectoryRecord("an episode").event_log().step_event_logs == []
