from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.episode import EpisodeSummary
from maze_pl.events import (
    BaseEnvEvents,
    DiscreteActionEvents,
    EventRecord,
    RunningReducer,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.pubsub import EnvironmentContext, Pubsub
from maze_pl.events.topics import StatisticsError


class ParcelEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(len)
    def lost(self, weight: float, owner: str) -> None: ...

    @define_epoch_stats(np.mean, input_name="mean_count")
    @define_epoch_stats(np.mean, input_name="max_weight", output_name="max_weight")
    @define_episode_stats(np.mean, input_name="count", output_name="mean_count")
    @define_episode_stats(np.mean, input_name="heaviest", output_name="max_weight")
    @define_step_stats(len, output_name="count")
    @define_step_stats(max, input_name="weight", output_name="heaviest")
    def loaded(self, weight: float, owner: str) -> None: ...

    @define_epoch_stats(np.mean)
    @define_episode_stats(np.max)
    @define_step_stats(np.sum)
    @define_stats_grouping("owner")
    def fee(self, value: float, owner: str) -> None: ...

    @define_epoch_stats(None)
    @define_episode_stats(None)
    @define_step_stats(None)
    def position(self, value: Any) -> None: ...

    @define_step_stats(len)
    def not_logged(self) -> None: ...


class BrokenEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(lambda weights: weights[0] / 0)
    def broken(self, weight: float) -> None: ...


NAME = f"{__name__}:ParcelEvents"


def fire(statistics: EpisodeStatistics, name: str, **attributes: Any) -> None:
    statistics.receive(EventRecord(ParcelEvents, getattr(ParcelEvents, name), attributes, 0))


def reward(statistics: EpisodeStatistics, value: Any) -> None:
    statistics.receive(EventRecord(BaseEnvEvents, BaseEnvEvents.reward, {"value": value}, 0))


def of(summary: EpisodeSummary, event: str, name: str | None = None, *groups: str) -> Any:
    return summary.statistics[NAME, event, name, groups]


def test_events_are_counted_in_each_step_and_summed_over_the_episode() -> None:
    statistics = EpisodeStatistics()
    for count in (2, 0, 1):
        for _ in range(count):
            fire(statistics, "lost", weight=3.0, owner="a")
        statistics.end_step()
    summary = statistics.end_episode()
    assert of(summary, "lost") == 3.0
    assert summary.env_steps == 3


def test_a_step_without_events_counts_as_zero_for_counts_and_not_at_all_for_others() -> None:
    statistics = EpisodeStatistics()
    for weights in ([1.0, 5.0], [], [3.0], []):
        for weight in weights:
            fire(statistics, "loaded", weight=weight, owner="a")
        statistics.end_step()
    summary = statistics.end_episode()
    assert of(summary, "loaded", "mean_count") == (2 + 0 + 1 + 0) / 4
    assert of(summary, "loaded", "max_weight") == (5.0 + 3.0) / 2


def test_groups_are_aggregated_by_themselves() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "fee", value=1.0, owner="a")
    fire(statistics, "fee", value=2.0, owner="a")
    fire(statistics, "fee", value=10.0, owner="b")
    statistics.end_step()
    fire(statistics, "fee", value=2.5, owner="a")
    statistics.end_step()
    summary = statistics.end_episode()
    assert (of(summary, "fee", None, "a"), of(summary, "fee", None, "b")) == (3.0, 10.0)


def test_step_keys_read_as_substeps_and_equal_labels_are_one_group() -> None:
    statistics = EpisodeStatistics()
    for step_key in (0, np.int64(0), "0", "cut"):
        attributes = {"step_key": step_key, "name": "x", "value": 1, "num_actions": 2}
        statistics.receive(EventRecord(DiscreteActionEvents, DiscreteActionEvents.action, attributes, 0))
    summary = statistics.end_episode()
    sizes = {key: len(value) for key, value in summary.statistics.items() if isinstance(value, np.ndarray)}
    assert sizes == {
        ("DiscreteActionEvents", "action", None, ("substep_0", "x")): 3,
        ("DiscreteActionEvents", "action", None, ("substep_cut", "x")): 1,
    }


class StopEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("place", "line")
    def stopped(self, place: Any, line: Any, value: Any) -> None: ...


@pytest.mark.parametrize("order", [[1, 1.0, True], [True, 1, 1.0], ["1", 1.0, 1], ["a", 1.0, True]])
def test_equal_values_with_different_labels_are_different_groups(order: list[Any]) -> None:
    others = [(1, 2), (1.0, 2.0), 0.0, -0.0, np.float32(0.1), torch.tensor(1), torch.tensor(0.1), None, np.int64(7), 7]
    statistics = EpisodeStatistics()
    expected: dict[tuple[str, ...], int] = {}
    for step in range(3):
        for number, place in enumerate([*order, *others, *order]):
            for line in ("x", 0, False):
                value = 100 * step + number
                text = str(place.numpy()[()]) if isinstance(place, torch.Tensor) else str(place)
                text = "0.0" if text == "-0.0" else text
                expected[text, str(line)] = expected.get((text, str(line)), 0) + value
                attributes = {"place": place, "line": line, "value": value}
                statistics.receive(EventRecord(StopEvents, StopEvents.stopped, attributes, 0))
        statistics.end_step()
    summary = statistics.end_episode()
    assert {key[3]: value for key, value in summary.statistics.items()} == expected


SUMMED = [
    ([[100, 50], [100, 50], [-128, 127]], np.int8),
    ([[200, 255], [1, 255], [0, 0]], np.uint8),
    ([[2**31 - 1, -(2**31)]] * 3, np.int32),
    ([[2**32 - 1, 5]] * 3, np.uint32),
    ([[1, 2], [3, 4]], np.int64),
    ([[True, False], [True, True]], np.bool_),
    ([[0.1, 1e8], [0.1, 1.0]], np.float32),
    ([[0.1, 1000.0], [0.1, 60000.0], [0.2, 60000.0]], np.float16),
    ([[0.1, 1e16], [0.1, 1.0]], np.float64),
]


@pytest.mark.parametrize("make", [np.array, torch.from_numpy])
@pytest.mark.parametrize("n_steps", [4, 10_004])
@pytest.mark.parametrize(("rows", "dtype"), SUMMED, ids=[kind.__name__ for _, kind in SUMMED])
def test_sums_of_arrays_neither_overflow_nor_lose_digits(rows: Any, dtype: Any, n_steps: int, make: Any) -> None:
    """Against Python's numbers; sums of steps, of episodes, and of values that are passed on."""

    class Sums:
        @define_epoch_stats(np.mean, input_name="by_step", output_name="by_step")
        @define_epoch_stats(np.mean, input_name="passed", output_name="passed")
        @define_epoch_stats(np.mean, input_name="mean", output_name="mean")
        @define_epoch_stats(np.mean, input_name="spread", output_name="spread")
        @define_epoch_stats(np.mean, input_name="running", output_name="running")
        @define_episode_stats(sum, input_name="by_step", output_name="by_step")
        @define_episode_stats(sum, input_name="passed", output_name="passed")
        @define_episode_stats(np.mean, input_name="passed", output_name="mean")
        @define_episode_stats(lambda values: sum(values)[0], input_name="passed", output_name="spread")
        @define_episode_stats(
            RunningReducer(lambda state, values: sum(values, 0 if state is None else state), lambda state: state[0]),
            input_name="passed",
            output_name="running",
        )
        @define_step_stats(sum, input_name="value", output_name="by_step")
        @define_step_stats(None, input_name="value", output_name="passed")
        def fired(self, value: Any) -> None: ...

    values = np.array(rows, dtype)
    fired = [make(row) for row in values]
    statistics = EpisodeStatistics()
    for step in range(n_steps):
        for row in fired if step < 4 else ():
            statistics.receive(EventRecord(Sums, Sums.fired, {"value": row}, 0))
        statistics.end_step()
    results = {key[2]: value for key, value in statistics.end_episode().statistics.items()}
    exact = values.tolist()  # Python's numbers
    by_step = [sum(4 * [sum(row[place] for row in exact)]) for place in range(2)]
    passed = [sum(4 * [row[place] for row in exact]) for place in range(2)]
    assert results["by_step"].tolist() == by_step
    assert results["passed"].tolist() == passed
    assert results["spread"] == results["running"] == passed[0]
    assert results["mean"] == pytest.approx(sum(passed) / (8 * len(rows)), rel=1e-15)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_step_without_arrays_counts_as_zeros_in_their_shape(make: Any) -> None:
    class Pairs:
        @define_epoch_stats(np.mean, input_name="sum", output_name="sum")
        @define_epoch_stats(np.mean, input_name="mean", output_name="mean")
        @define_epoch_stats(np.mean, input_name="all", output_name="all")
        @define_episode_stats(np.sum, output_name="sum")
        @define_episode_stats(np.mean, output_name="mean")
        @define_episode_stats(None, output_name="all")
        @define_step_stats(sum)
        def fired(self, value: Any) -> None: ...

    statistics = EpisodeStatistics()
    for step in range(4):
        for value in ([1, 2], [3.5, 4]) if step in (1, 3) else ():
            statistics.receive(EventRecord(Pairs, Pairs.fired, {"value": make(value)}, 0))
        statistics.end_step()
    results = {key[2]: value for key, value in statistics.end_episode().statistics.items()}
    assert results["all"].tolist() == [[0, 0], [4.5, 6], [0, 0], [4.5, 6]]  # type: ignore[union-attr]
    assert (results["sum"], results["mean"]) == (21.0, 21.0 / 8)
    for _ in range(2):
        statistics.end_step()
    results = {key[2]: value for key, value in statistics.end_episode().statistics.items()}
    assert results["all"].tolist() == [0, 0]  # type: ignore[union-attr]


def test_the_reward_is_the_sum_of_all_reward_events_in_double_precision() -> None:
    statistics = EpisodeStatistics()
    for _ in range(1000):
        reward(statistics, np.float32(0.1))
        statistics.end_step()
    summary = statistics.end_episode()
    assert summary.reward == sum([float(np.float32(0.1))] * 1000)
    assert summary.statistics == {}


def test_rewards_of_sub_steps_add_up_to_one_environment_step() -> None:
    statistics = EpisodeStatistics()
    reward(statistics, 1.0)
    reward(statistics, np.array(2.0))
    statistics.end_step()
    summary = statistics.end_episode({"usage": np.float32(0.5)})  # type: ignore[dict-item]
    assert (summary.reward, summary.env_steps, summary.kpis) == (3.0, 1, {"usage": 0.5})
    assert type(summary.kpis["usage"]) is float


def test_kpis_may_be_fired_as_events() -> None:
    statistics = EpisodeStatistics()
    statistics.receive(EventRecord(BaseEnvEvents, BaseEnvEvents.kpi, {"name": "waste", "value": 4}, 0))
    statistics.end_step()
    summary = statistics.end_episode({"usage": 1})
    assert (summary.kpis, summary.statistics) == ({"waste": 4.0, "usage": 1.0}, {})


def test_events_after_the_last_completed_step_are_a_step_of_their_own() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "loaded", weight=1.0, owner="a")
    statistics.end_step()
    fire(statistics, "loaded", weight=1.0, owner="a")
    fire(statistics, "loaded", weight=1.0, owner="a")
    summary = statistics.end_episode()
    assert (of(summary, "loaded", "mean_count"), summary.env_steps) == (1.5, 1)


def test_environment_time_may_be_given() -> None:
    statistics = EpisodeStatistics()
    statistics.end_step()
    assert statistics.end_episode(env_steps=4).env_steps == 4


def test_arrays_are_kept_as_they_were_in_their_shape() -> None:
    statistics = EpisodeStatistics()
    pubsub = Pubsub(EnvironmentContext())
    events = pubsub.create_event_topic(ParcelEvents)
    position = np.array([1.0, 2.0], dtype=np.float32)
    for _ in range(3):
        events.position(position)
        position += 1  # the environment works in place
        statistics.receive(pubsub.drain()[0])
        statistics.end_step()
    values = of(statistics.end_episode(), "position")
    np.testing.assert_array_equal(values, [[1, 2], [2, 3], [3, 4]])
    assert values.dtype == np.float32


def test_arrays_of_different_shapes_are_flattened() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "position", value=np.ones((2, 2)))
    fire(statistics, "position", value=np.zeros(3))
    np.testing.assert_array_equal(of(statistics.end_episode(), "position"), [1, 1, 1, 1, 0, 0, 0])


def test_declared_topics_count_zero_events_and_have_no_mean_of_nothing() -> None:
    statistics = EpisodeStatistics()
    statistics.declare(ParcelEvents, BaseEnvEvents)
    statistics.end_step()
    summary = statistics.end_episode()
    assert summary.statistics == {(NAME, "lost", None, ()): 0.0, (NAME, "loaded", "mean_count", ()): 0.0}
    assert summary.reward == 0.0


def test_declaring_a_topic_late_or_twice_does_no_harm() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "lost", weight=3.0, owner="a")
    statistics.declare(ParcelEvents)
    statistics.declare(ParcelEvents)
    assert of(statistics.end_episode(), "lost") == 1.0


def test_an_episode_without_steps_is_safe() -> None:
    statistics = EpisodeStatistics()
    statistics.declare(ParcelEvents)
    summary = statistics.end_episode()
    assert (summary.statistics, summary.env_steps) == ({(NAME, "lost", None, ()): 0.0}, 0)


def test_episodes_do_not_leak_into_each_other() -> None:
    statistics = EpisodeStatistics()
    for _ in range(2):
        fire(statistics, "lost", weight=3.0, owner="a")
        fire(statistics, "fee", value=3.0, owner="a")
        statistics.end_step()
        first = statistics.end_episode()
        assert (of(first, "lost"), of(first, "fee", None, "a"), first.env_steps) == (1.0, 3.0, 1)
    fire(statistics, "fee", value=3.0, owner="a")
    statistics.end_step()
    statistics.reset()
    summary = statistics.end_episode()
    assert (NAME, "fee", None, ("a",)) not in summary.statistics
    assert summary.env_steps == 0


def test_events_without_statistics_are_ignored() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "not_logged")
    statistics.end_step()
    assert not any(key[1] == "not_logged" for key in statistics.end_episode().statistics)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_an_episode_continues_in_a_copy(duplicate: Any) -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "lost", weight=3.0, owner="a")
    fire(statistics, "fee", value=3.0, owner="a")
    statistics.end_step()
    copied = duplicate(statistics)
    for one in (statistics, copied):
        fire(one, "lost", weight=3.0, owner="a")
        fire(one, "fee", value=4.0, owner="a")
        one.end_step()
    assert statistics.end_episode() == copied.end_episode()


def test_a_summary_can_be_pickled() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "lost", weight=3.0, owner="a")
    summary = statistics.end_episode({"usage": 0.5})
    assert pickle.loads(pickle.dumps(summary)) == summary


def test_a_failing_reduction_says_whose_it_is() -> None:
    statistics = EpisodeStatistics()
    statistics.receive(EventRecord(BrokenEvents, BrokenEvents.broken, {"weight": 3.0}, 0))
    with pytest.raises(StatisticsError) as caught:
        statistics.end_episode()
    assert str(caught.value) == (
        "the step statistic None of BrokenEvents.broken, with input_name='weight', cannot be computed: "
        "ZeroDivisionError: float division by zero"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_values_that_are_no_numbers_are_refused_by_name() -> None:
    statistics = EpisodeStatistics()
    fire(statistics, "position", value="left")
    with pytest.raises(StatisticsError, match=r"episode statistic None of ParcelEvents.position.* expected numbers"):
        statistics.end_episode()


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), "much", None, np.zeros(2)])
def test_a_kpi_that_is_no_finite_number_is_refused_by_name(value: Any) -> None:
    with pytest.raises(StatisticsError, match=r"KPI 'usage' is .*, which is not a finite number; omit"):
        EpisodeStatistics().end_episode({"usage": value})
