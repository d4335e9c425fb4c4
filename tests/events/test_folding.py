"""Statistics of long episodes: exact up to 10,000 steps, of bounded size and as good as exact above."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from typing import Any

import numpy as np
import pytest

from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.histogram import MOST_DISTINCT_VALUES, Histogram
from maze_pl.events import (
    BaseEnvEvents,
    EpochStatistics,
    EventRecord,
    RunningReducer,
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.folding import MOST_KEPT_STEPS

REDUCERS = (sum, min, max, len, math.fsum, np.sum, np.min, np.max, np.mean, np.std, np.var, np.median)


def add_square(state: float | None, values: list[float]) -> float:
    return (state or 0.0) + math.fsum(value * value for value in values)


SQUARES = RunningReducer(add_square, math.sqrt)


def _all(event: Any) -> Any:
    for number, reduce in enumerate((*REDUCERS, SQUARES)):
        event = define_epoch_stats(np.mean, input_name=str(number), output_name=str(number))(event)
        event = define_episode_stats(reduce, output_name=str(number))(event)
    return event


class SignalEvents:
    @_all
    @define_step_stats(None)
    def signal(self, value: float) -> None: ...

    @_all
    @define_step_stats(len)
    def pulse(self) -> None: ...

    @_all
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("name")
    def share(self, name: str, value: float) -> None: ...

    @define_epoch_stats(None)
    @define_episode_stats(None)
    @define_step_stats(None)
    def level(self, value: Any) -> None: ...

    @define_plot(lambda values, groups: values)
    @define_step_stats(None)
    def drawn(self, value: float) -> None: ...


NAME = f"{__name__}:SignalEvents"


class Driver:
    """Fires random events step by step, and keeps what it fired."""

    def __init__(self) -> None:
        self.statistics, self.random = EpisodeStatistics(), np.random.default_rng(0)
        self.signals: list[float] = []
        self.pulses: list[int] = []
        self.shares: list[float] = []
        self.levels: list[float] = []
        self.reward = 0.0

    def fire(self, event: Any, **attributes: Any) -> None:
        self.statistics.receive(EventRecord(SignalEvents, event, attributes, 0))

    def run(self, n_steps: int) -> None:
        for signal in self.random.normal(5.0, 2.0, n_steps).tolist():
            self.fire(SignalEvents.signal, value=signal)
            self.signals.append(signal)
            pulses = len(self.pulses) % 3
            for _ in range(pulses):
                self.fire(SignalEvents.pulse)
            self.pulses.append(pulses)
            if len(self.pulses) > 15_000:
                self.fire(SignalEvents.share, name="late", value=signal)
            self.shares.append(signal if len(self.pulses) > 15_000 else 0)
            self.fire(SignalEvents.level, value=np.float32(signal))
            self.levels.append(float(np.float32(signal)))
            self.statistics.receive(EventRecord(BaseEnvEvents, BaseEnvEvents.reward, {"value": signal}, 0))
            self.reward += signal
            self.statistics.end_step()


def statistic(summary: EpisodeSummary, event: str, reduce: Any, *groups: str) -> Any:
    return summary.statistics[NAME, event, str((*REDUCERS, SQUARES).index(reduce)), groups]


def test_up_to_10_000_steps_each_statistic_is_the_function_of_all_values() -> None:
    driver = Driver()
    driver.run(MOST_KEPT_STEPS)
    summary = driver.statistics.end_episode()
    for reduce in (*REDUCERS, SQUARES):
        assert statistic(summary, "signal", reduce) == float(reduce(driver.signals)), reduce
        assert statistic(summary, "pulse", reduce) == float(reduce(driver.pulses)), reduce
    assert isinstance(summary.statistics[NAME, "level", None, ()], np.ndarray)
    assert (summary.reward, summary.env_steps) == (driver.reward, MOST_KEPT_STEPS)


def test_statistics_of_a_longer_episode_are_those_of_all_values() -> None:
    driver = Driver()
    driver.run(25_000)
    summary = driver.statistics.end_episode()
    exact = (sum, min, max, len, math.fsum, np.min, np.max, np.median)
    for values, event, groups in (
        (driver.signals, "signal", ()),
        (driver.pulses, "pulse", ()),
        (driver.shares, "share", ("late",)),
    ):
        for reduce in (*REDUCERS, SQUARES):
            found, expected = statistic(summary, event, reduce, *groups), float(reduce(values))
            assert found == expected if reduce in exact else math.isclose(found, expected, rel_tol=1e-12), reduce
    assert (summary.reward, summary.env_steps) == (driver.reward, 25_000)


def test_means_and_variances_lose_no_digits_far_from_zero() -> None:
    statistics = EpisodeStatistics()
    values = (1e9 + np.random.default_rng(0).normal(size=30_000)).tolist()
    for value in values:
        statistics.receive(EventRecord(SignalEvents, SignalEvents.signal, {"value": value}, 0))
        statistics.end_step()
    summary = statistics.end_episode()
    assert statistic(summary, "signal", np.mean) == math.fsum(values) / len(values)
    assert math.isclose(statistic(summary, "signal", np.std), float(np.std(values)), rel_tol=1e-9)


@pytest.mark.parametrize("values", [[math.inf, 1.0], [math.inf, -math.inf], [math.nan, 1.0], [1e308, 1e308]])
def test_values_that_are_not_finite_stay_so(values: list[float]) -> None:
    statistics = EpisodeStatistics()
    for n in range(3 * MOST_KEPT_STEPS):
        statistics.receive(EventRecord(SignalEvents, SignalEvents.signal, {"value": values[n % 2]}, 0))
        statistics.end_step()
    with np.errstate(all="ignore"):
        summary = statistics.end_episode()
        expected = float(np.sum(values * 2))
    assert statistic(summary, "signal", np.sum) == expected or math.isnan(expected)
    assert math.isnan(expected) == math.isnan(statistic(summary, "signal", np.mean))


def test_the_histogram_of_a_longer_episode_has_all_counts_and_nearly_all_values() -> None:
    driver = Driver()
    driver.run(35_000)
    level = driver.statistics.end_episode().statistics[NAME, "level", None, ()]
    assert isinstance(level, Histogram)
    values = np.sort(driver.levels)
    assert level.count == 35_000 and len(level.values) <= MOST_DISTINCT_VALUES
    assert (level.values[0], level.values[-1]) == (values[0], values[-1])
    assert math.isclose(level.mean, values.mean(), rel_tol=1e-12)
    moved = np.abs(np.repeat(level.values, level.counts) - values)
    assert moved.max() <= (values[-1] - values[0]) / 512
    assert (np.diff(level.values) > 0).all()


def test_the_histogram_of_few_distinct_values_is_exact_however_long_the_episode_is() -> None:
    statistics = EpisodeStatistics()
    for n in range(30_000):
        statistics.receive(EventRecord(SignalEvents, SignalEvents.level, {"value": n % 7}, 0))
        statistics.end_step()
    level = statistics.end_episode().statistics[NAME, "level", None, ()]
    assert level == Histogram.of(np.arange(30_000) % 7)
    assert isinstance(level, Histogram) and level.values.dtype == np.int64


def test_an_epoch_joins_long_and_short_episodes() -> None:
    epoch, values = EpochStatistics(), []
    for n_steps in (20_005, 50, 10_001):
        driver = Driver()
        driver.run(n_steps)
        values += driver.levels
        epoch.add(driver.statistics.end_episode())
    level = epoch.compute()["SignalEvents/level"]
    assert isinstance(level, Histogram) and level.count == len(values)
    assert math.isclose(level.mean, np.mean(values), rel_tol=1e-12)


def test_a_group_of_one_episode_has_zeros_in_a_long_one_without_it() -> None:
    epoch = EpochStatistics()
    for name, n_steps in (("a", 10), ("b", 20_010)):
        statistics = EpisodeStatistics()
        for _ in range(n_steps):
            attributes = {"name": name, "value": 1.0}
            statistics.receive(EventRecord(SignalEvents, SignalEvents.share, attributes, 0))
            statistics.end_step()
        epoch.add(statistics.end_episode())
    result = epoch.compute()
    count = str(REDUCERS.index(len))
    assert result[f"SignalEvents/share/{count}/a"] == (10 + 20_010) / 2  # a value of 0 in each step
    assert result[f"SignalEvents/share/{REDUCERS.index(np.mean)}/a"] == 0.5


ARRAYS_REDUCED = (sum, np.sum, np.mean, np.std, np.max, np.median)


class PairEvents:
    @define_epoch_stats(None, input_name="all", output_name="all")
    @define_episode_stats(None, input_name="total", output_name="all")
    @define_step_stats(sum, output_name="total")
    def kept(self, value: Any) -> None: ...


for _number, _reduce in enumerate(ARRAYS_REDUCED):
    define_epoch_stats(np.mean, input_name=str(_number), output_name=str(_number))(PairEvents.kept)
    define_episode_stats(_reduce, input_name="total", output_name=str(_number))(PairEvents.kept)


@pytest.mark.parametrize("first", [0, 3, 15_000, 25_000])
@pytest.mark.parametrize("n_steps", [9_000, 26_000])
def test_steps_without_events_have_zeros_in_the_shape_of_the_arrays_of_others(first: int, n_steps: int) -> None:
    statistics = EpisodeStatistics()
    statistics.declare(PairEvents)
    totals = np.zeros((n_steps, 2))
    for step in range(n_steps):
        if step in (first, first + 700):
            for value in ([1.5, -2.0], [0.25, 4.0]):
                attributes = {"value": np.array(value)}
                statistics.receive(EventRecord(PairEvents, PairEvents.kept, attributes, 0))
                totals[step] += value
        statistics.end_step()
    found = {key[2]: value for key, value in statistics.end_episode().statistics.items()}
    has_events = first < n_steps
    expected = totals if has_events else totals[:, 0]  # of numbers, without any event
    assert Histogram.of(found["all"]) == Histogram.of(expected)
    for number, reduce in enumerate(ARRAYS_REDUCED):
        result: Any = expected.sum(0) if reduce is sum else reduce(expected)
        np.testing.assert_allclose(found[str(number)], result, rtol=1e-12)  # type: ignore[arg-type]


def kept(statistics: EpisodeStatistics) -> int:
    return len(pickle.dumps(statistics))


def test_the_running_episode_has_a_bounded_size() -> None:
    driver = Driver()
    sizes = []
    for _ in range(4):
        driver.run(MOST_KEPT_STEPS + 1)
        for values in driver.statistics._values.values():
            for group in values.groups.values():
                group.folded.pop(str(REDUCERS.index(np.median)), None)  # which has no running form
        sizes.append(kept(driver.statistics))
    assert max(sizes[1:]) <= sizes[0] + 2_000 < 50_000


def test_a_copy_in_mid_episode_goes_on_equally_before_and_after_values_were_folded() -> None:
    for n_before in (MOST_KEPT_STEPS // 2, MOST_KEPT_STEPS + 500):
        driver = Driver()
        driver.run(n_before)
        copied = copy.deepcopy(driver)
        for one in (driver, copied):
            one.run(12_000)
        assert driver.statistics.end_episode() == copied.statistics.end_episode()


def test_an_episode_after_a_long_one_begins_with_nothing() -> None:
    driver = Driver()
    driver.run(20_100)
    driver.statistics.end_episode()
    driver.signals.clear()
    driver.run(10)
    summary = driver.statistics.end_episode()
    assert statistic(summary, "signal", sum) == sum(driver.signals)
    assert summary.env_steps == 10


def test_what_has_no_running_form_is_kept_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class OwnEvents:
        @define_epoch_stats(np.mean)
        @define_episode_stats(np.median)
        @define_step_stats(None)
        def value(self, value: float) -> None: ...

        @define_plot(lambda values, groups: values)
        @define_step_stats(None)
        def drawn(self, value: float) -> None: ...

    statistics = EpisodeStatistics()
    with caplog.at_level(logging.WARNING):
        for n in range(2 * MOST_KEPT_STEPS + 10):
            for event in (OwnEvents.value, OwnEvents.drawn):
                statistics.receive(EventRecord(OwnEvents, event, {"value": float(n)}, 0))
            statistics.end_step()
    summary = statistics.end_episode()
    values = {key[1]: value for key, value in summary.statistics.items()}
    assert values["value"] == MOST_KEPT_STEPS + 4.5
    np.testing.assert_array_equal(values["drawn"], np.arange(2 * MOST_KEPT_STEPS + 10.0))
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(
        "the episode statistic None of OwnEvents.value keeps a value of each step, also of an episode of more than "
    )
    assert "10,000 steps: median needs all of them; declare a maze_pl.events.RunningReducer in its place" in first
    assert "OwnEvents.drawn keeps" in second and "a plot needs all of them" in second


def test_a_summary_with_a_histogram_goes_through_a_checkpoint() -> None:
    driver = Driver()
    driver.run(MOST_KEPT_STEPS + 1)
    summary = driver.statistics.end_episode()
    assert EpisodeSummary.from_dict(copy.deepcopy(summary).to_dict()) == summary
