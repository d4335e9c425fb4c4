"""Statistics of events in arrays equal those of single episodes, and take memory for what happened only."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import EpisodeBatch, StatColumn, joined_summaries
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.arrays import ArrayEvents
from maze_pl.envs.arrays.array_statistics import ArrayStatistics
from maze_pl.events import (
    EpochStatistics,
    EventRecord,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.attribute_values import copied
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.topics import histogram

N_ENVS, N_STEPS = 3, 4
Firing = tuple[list[int], dict[str, Any]]
"""Environments [n], and the attributes: arrays and lists hold n values, anything else counts for all."""
Fire = Callable[[int], list[Firing]]
"""Returns the firings of a step, of which each episode has four."""


def topic_of(step: Any, episode: Any, epoch: Any = histogram) -> type:
    """A topic with an event that has these statistics."""

    class Topic:
        @define_epoch_stats(epoch)
        @define_episode_stats(episode)
        @define_step_stats(step)
        def fired(self, value: Any) -> None: ...

    return Topic


class Kinds:
    @define_epoch_stats(histogram)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="value")
    @define_stats_grouping("kind")
    def fired(self, kind: Any, value: Any) -> None: ...


class Arrays:
    """Plays three environments at once.

    Args:
        topic: The topic, with one event, `fired`.
    """

    def __init__(self, topic: type) -> None:
        self.topic = topic
        self.events = ArrayEvents()
        self.events.n_envs = N_ENVS
        self.fires = self.events.create_event_topic(topic)
        step = StepSpec(spaces.Dict(), spaces.Dict({"a": spaces.Discrete(2)}))
        self.statistics = ArrayStatistics(Spec({0: step}), N_ENVS, 0)

    def play(self, fire: Fire, steps: Sequence[int]) -> EpisodeBatch:
        """Play some steps, and return the episodes that ended."""
        everyone = np.arange(N_ENVS)
        for step in steps:
            for which, attributes in fire(step):
                self.fires.fired(which, **attributes)
            self.statistics.receive(self.events.drain())
            self.statistics.note_rewards(slice(None), np.zeros(N_ENVS), None)
            if step % N_STEPS == N_STEPS - 1:
                self.statistics.end_episodes(everyone, self.statistics.n_steps.copy(), {}, None, {})
                self.statistics.episode += 1
        return self.statistics.drain([self.topic])


def singles(topic: type, fire: Fire, steps: Sequence[int]) -> list[EpisodeSummary]:
    """Play the same episodes one after the other, sorted by environment."""
    summaries = []
    for env in range(N_ENVS):
        statistics = EpisodeStatistics()
        statistics.declare(topic)
        for step in steps:
            for which, attributes in fire(step):
                for place in [place for place, number in enumerate(which) if number == env]:
                    of_env = {name: copied(value_at(value, place)) for name, value in attributes.items()}
                    statistics.receive(EventRecord(topic, topic.fired, of_env, 0))  # type: ignore[attr-defined]
            statistics.end_step()
            if step % N_STEPS == N_STEPS - 1:
                summaries.append(statistics.end_episode())
                summaries[-1].env_index, summaries[-1].episode_index = env, step // N_STEPS
    return summaries


def value_at(value: Any, place: int) -> Any:
    """Value of one of several events."""
    has_many = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return value[place] if has_many else value


def assert_equal_episodes(topic: type, found: Sequence[EpisodeSummary], expected: Sequence[EpisodeSummary]) -> None:
    """Values of episodes, with their shapes, and statistics of the epoch are equal."""
    assert len(found) == len(expected)
    by_place = sorted(found, key=lambda one: (one.env_index, one.episode_index))
    for one, other in zip(by_place, expected, strict=True):
        assert one.statistics.keys() == other.statistics.keys()
        for key, value in other.statistics.items():
            assert isinstance(one.statistics[key], np.ndarray) == isinstance(value, np.ndarray)
            assert np.shape(one.statistics[key]) == np.shape(value)  # type: ignore[arg-type]
            np.testing.assert_array_equal(one.statistics[key], value)  # type: ignore[arg-type]
    epochs = []
    for summaries in (found, expected):
        epoch = EpochStatistics(topics=[topic])
        epoch.add_all(summaries)
        epochs.append(epoch.compute())
    assert epochs[0] == epochs[1]


STEPS = range(4 * N_STEPS)


def pairs(step: int) -> list[Firing]:
    """Pairs of numbers in some steps; the last environment has none in its first two episodes."""
    which = [env for env in range(N_ENVS) if (env + step) % 3 and (env < 2 or step > 7)]
    return [(which, {"value": np.array([[env + 1, 10 * step] for env in which], np.float32)})] if which else []


def growing(step: int) -> list[Firing]:
    """Vectors that become longer."""
    return [([0, 2], {"value": np.ones((2, step + 1))})]


def number_then_vector(step: int) -> list[Firing]:
    return [([0, 1], {"value": 1.5 if step % 3 else np.ones((2, 2))})]


def text_and_number(step: int) -> list[Firing]:
    return [([2, 0], {"value": ["ab", 2.0] if step % 4 == 1 else step})]


def large(step: int) -> list[Firing]:
    return [([0, 1], {"value": np.array([2**63 + 5 + step, step], np.uint64)})]


def large_sums(step: int) -> list[Firing]:
    return [([0, 0, 1], {"value": np.array([2**62, 2**62 - step, step])})]


def whole_then_half(step: int) -> list[Firing]:
    return [([0, 1, 0], {"value": step if step % 2 else np.array([0.5, -0.0, step])})]


def places(step: int) -> list[Firing]:
    """Tuples, of which those of two environments are equal."""
    return [([0, 1, 1], {"value": [(step, 1), (step, 1), (0, 1)]}), ([2], {"value": [None if step % 2 else (1,)]})]


def n_different(values: list[Any]) -> float:
    return float(len(set(values)))


def routes(step: int) -> list[Firing]:
    """Texts that become longer."""
    return [([0, 2], {"value": ["-".join(map(str, range(step + 1))), "a\0"]})]


def sizes(values: list[Any]) -> float:
    return float(sum(np.size(value) for value in values))


def n_texts(values: list[Any]) -> float:
    return float(sum(isinstance(value, str) for value in values))


def one_or_two(values: list[Any]) -> Any:
    return float(len(values)) if len(values) % 2 else np.array([len(values), 7])


REDUCED: list[tuple[Fire, Any, Any]] = [
    *[(pairs, sum, episode) for episode in (sum, np.sum, np.mean, np.max, np.std, None, one_or_two)],
    *[(pairs, step, np.mean) for step in (np.sum, np.max, np.mean, np.median, None)],
    (pairs, None, one_or_two),
    *[(growing, step, episode) for step, episode in ((None, None), (sizes, sum), (None, sizes), (np.sum, np.max))],
    *[(number_then_vector, step, episode) for step, episode in ((None, None), (sum, sum), (sizes, None))],
    (text_and_number, n_texts, sum),
    *[(places, n_different, episode) for episode in (sum, max)],
    *[(routes, step, sum) for step in (n_texts, n_different, len)],
    (text_and_number, len, sum),
    *[(large, step, episode) for step in (sum, max, None) for episode in (sum, max)],
    *[(large_sums, step, sum) for step in (sum, max, None)],
    *[(whole_then_half, step, episode) for step in (sum, max, np.mean, one_or_two) for episode in (sum, np.sum)],
]


@pytest.mark.parametrize(("fire", "step", "episode"), REDUCED)
def test_episodes_equal_single_ones(fire: Fire, step: Any, episode: Any) -> None:
    topic = topic_of(step, episode)
    assert_equal_episodes(topic, Arrays(topic).play(fire, STEPS), singles(topic, fire, STEPS))


@pytest.mark.parametrize("fire", [pairs, number_then_vector, whole_then_half])
@pytest.mark.parametrize("step", [sum, None, np.sum])
def test_parts_of_an_epoch_may_be_drained_one_after_the_other(fire: Fire, step: Any) -> None:
    topic = topic_of(step, sum if step is not None else None)
    arrays = Arrays(topic)
    parts = [arrays.play(lambda step: fire(step) if step > 5 else [], part) for part in (STEPS[:6], STEPS[6:])]
    expected = singles(topic, lambda step: fire(step) if step > 5 else [], STEPS)
    assert_equal_episodes(topic, joined_summaries(parts), expected)


def test_episodes_do_not_depend_on_the_values_of_earlier_ones() -> None:
    topic = topic_of(sum, sum)
    arrays = Arrays(topic)
    arrays.play(number_then_vector, STEPS[:N_STEPS])
    (column,) = arrays.play(whole_then_half, STEPS[N_STEPS : 2 * N_STEPS]).statistics.values()
    assert column.counts is None and column.values.dtype == np.float64
    (column,) = arrays.play(lambda _: [], STEPS[:N_STEPS]).statistics.values()
    assert column.counts is None and column.values.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [{"x": 1}, {1}, ([1],), [{"x": 1}, {"x": 2}], np.array([{"x": 1}, None])])
def test_values_of_any_kind_are_those_at_the_time_of_the_event(value: Any) -> None:
    kept = []

    def keep(values: list[Any]) -> int:
        kept.extend(values)
        return 1

    topic = topic_of(keep, sum)
    given = copy.deepcopy(value)

    def fire(step: int) -> list[Firing]:
        return [([0, 1], {"value": given})] if not step else []

    arrays = Arrays(topic)
    arrays.play(fire, STEPS[:1])
    inner = given[0] if isinstance(given, list | tuple | np.ndarray) else given
    {dict: dict.clear, set: set.clear, list: list.clear}[type(inner)](inner)
    arrays.play(lambda _: [], STEPS[1:N_STEPS])
    assert kept == [value_at(value, 0), value_at(value, 1)]


MIXED = [[1, 2.5, True], ["1", 1, 1.0], [None, "a", 3], [(1, 2), (1, 2), (3, 4)], [0.0, -0.0, float("nan")]]


@pytest.mark.parametrize("kinds", [*MIXED, np.array([1, 1, 2]), np.array(["a", "b", "a"]), np.array([1.5, 1, 1.5])])
def test_groups_equal_those_of_single_episodes(kinds: Any) -> None:
    def fire(step: int) -> list[Firing]:
        which = np.roll([0, 1, 1], step).tolist()
        return [(which, {"kind": kinds, "value": 0.1 * step + np.arange(3)})] if step % 3 else []

    assert_equal_episodes(Kinds, Arrays(Kinds).play(fire, STEPS), singles(Kinds, fire, STEPS))


def test_groups_and_busy_environments_take_memory_for_their_events_only() -> None:
    arrays = Arrays(Kinds)
    kinds = np.arange(1000)
    arrays.play(lambda _: [(np.zeros(1000, np.int64).tolist(), {"kind": kinds, "value": 1.0})], STEPS[:3])
    (log,) = arrays.statistics._events.values()
    assert len(log) == 3000
    assert sum(column.nbytes for column in log._columns.values()) <= 2 * 3000 * 4 * 8
    batch = arrays.play(lambda _: [], STEPS[3:N_STEPS])
    assert len(batch.statistics) == 1000
    assert all(column.episodes.tolist() == [0] and column.values == [3.0] for column in batch.statistics.values())
    assert len(log) == 0 and not log._columns


def test_texts_take_memory_for_their_lengths_only() -> None:
    arrays = Arrays(topic_of(n_texts, sum))
    arrays.play(lambda step: [([0, 1], {"value": ["x" * 10 * step] * 2})], range(0, 63 * N_STEPS, N_STEPS))
    (log,) = arrays.statistics._events.values()
    assert len(log) == 2 * 63
    assert sum(column.nbytes for column in log._columns.values()) <= 3 * 256 * 8, "numbers, and references to texts"


def test_staggered_episodes_take_memory_for_the_running_ones_only() -> None:
    def fire(step: int) -> list[Firing]:
        return [([0, 1, 2], {"kind": np.arange(3) + 3 * (step // N_STEPS), "value": 1.0})]

    arrays = Arrays(Kinds)
    for first in range(0, 200 * N_STEPS, N_STEPS):
        arrays.play(fire, range(first, first + N_STEPS - 1))
        which = np.array([first // N_STEPS % N_ENVS])
        length = arrays.statistics.n_steps[which].copy()
        arrays.statistics.end_episodes(which, length, {}, None, {})
        arrays.statistics.episode[which] += 1
        batch = arrays.statistics.drain([Kinds])
        assert sum(column.values.sum() for column in batch.statistics.values()) == length
    (log,) = arrays.statistics._events.values()
    assert len(log) == arrays.statistics.n_steps.sum()
    assert all(len(column) <= 64 for column in log._columns.values())
    assert len(log._labels) <= 64 + 3, "of 600 groups, most have no events now"


def test_a_drain_does_not_touch_the_events_of_running_episodes() -> None:
    topic = topic_of(sum, sum)
    arrays = Arrays(topic)
    arrays.play(lambda step: [([0, 1, 1], {"value": float(step)})], range(3))
    arrays.statistics.end_episodes(np.array([0]), np.array([3]), {}, None, {})
    (log,) = arrays.statistics._events.values()
    column = log._columns["value value"]
    rows, running = log._blocks.running()
    column[rows] = np.nan
    (ended,) = arrays.statistics.drain([topic]).statistics.values()
    assert ended.values.tolist() == [3.0]
    assert log._columns["value value"] is column and running.tolist() == [1] * 6


def test_objects_of_ended_episodes_are_let_go() -> None:
    class Thing:
        pass

    arrays = Arrays(topic_of(None, sizes))
    things = [Thing(), Thing()]
    known = [weakref.ref(thing) for thing in things]
    arrays.play(lambda _: [([0, 1], {"value": things})], [0])
    things.clear()
    arrays.statistics.end_episodes(np.array([0]), np.array([1]), {}, None, {})
    arrays.statistics.drain([])
    assert [reference() is None for reference in known] == [True, False]
    arrays.statistics.drop_running(np.array([1]))
    assert known[1]() is None


def test_abandoned_episodes_are_left_out_and_forgotten() -> None:
    topic = topic_of(sum, sum)
    arrays = Arrays(topic)
    arrays.play(whole_then_half, STEPS[:2])
    arrays.statistics.drop_running(np.array([0]))
    arrays.play(lambda _: [], [])
    (log,) = arrays.statistics._events.values()
    assert len(log) == 2, "both of environment 1"
    batch = arrays.play(lambda _: [], STEPS[2:N_STEPS])
    (column,) = batch.statistics.values()
    assert column.values.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("fire", [pairs, growing, number_then_vector, large])
def test_a_checkpoint_continues_the_episodes(fire: Fire) -> None:
    topic = topic_of(sum, sum) if fire is not growing else topic_of(None, None)
    arrays, other = Arrays(topic), Arrays(topic)
    arrays.play(fire, STEPS[:6])
    state = to_tensors(arrays.statistics.state_dict())
    other.play(number_then_vector, STEPS[:3])
    other.statistics.load_state_dict(from_tensors(state), [topic])
    other.statistics.episode[...] = arrays.statistics.episode
    expected = arrays.play(fire, STEPS[6:])
    assert_equal_episodes(topic, other.play(fire, STEPS[6:]), sorted(expected, key=lambda one: one.env_index))


def topic_with(*inputs: str) -> type:
    """A topic of the same name, with a step statistic of each of these inputs."""

    class Edited:
        def fired(self, one: float, other: float) -> None: ...

    for name in inputs:
        define_step_stats(sum, input_name=name, output_name=name)(Edited.fired)
        define_episode_stats(sum, input_name=name, output_name=name)(Edited.fired)
        define_epoch_stats(np.mean, input_name=name, output_name=name)(Edited.fired)
    return Edited


def fire_both(step: int) -> list[Firing]:
    return [([0, 1], {"one": float(step), "other": 10.0})]


def test_a_checkpoint_continues_without_a_statistic_that_was_removed() -> None:
    arrays, other = Arrays(topic_with("one", "other")), Arrays(topic_with("one"))
    arrays.play(fire_both, STEPS[:2])
    other.statistics.load_state_dict(arrays.statistics.state_dict(), [other.topic])
    other.play(fire_both, STEPS[2:3])
    other.statistics.end_episodes(np.array([0]), np.array([3]), {}, None, {})
    batch = other.statistics.drain([other.topic])
    found = {key[2]: column.values.tolist() for key, column in batch.statistics.items()}
    assert found == {"one": [3.0]}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_checkpoint_without_the_values_of_a_new_statistic_is_refused(is_old: bool) -> None:
    arrays, other = Arrays(topic_with("one")), Arrays(topic_with("one", "other"))
    arrays.play(fire_both, STEPS[:2])
    state = arrays.statistics.state_dict()
    if is_old:
        log = {"counts": np.array([1, 0, 0]), "columns": {"step": np.array([0]), "value one": np.array([0.5])}}
        state["events"] = [{**state["events"][0], "labels": [], "log": log}]
    fault = r"the event 'fired' of \S+Edited have no values of 'other'; resume with the code that saved it"
    with pytest.raises(ValueError, match=fault):
        other.statistics.load_state_dict(state, [other.topic])


def test_a_checkpoint_of_version_0_2_continues_the_episodes() -> None:
    """It has a log for each group, in which values lie environment by environment."""
    arrays = Arrays(Kinds)
    state = arrays.statistics.state_dict()
    name = f"{__name__}:Kinds"
    log = {"counts": np.array([2, 0, 1]), "columns": {"step": np.array([0, 1, 1]), "value value": np.arange(3) + 0.5}}
    few = {"counts": np.array([0, 0, 1]), "columns": {"step": np.array([0]), "value value": np.array([4])}}
    state["n_steps"] = np.full(N_ENVS, 2)
    state["events"] = [
        {"topic": name, "event": "fired", "labels": ["a"], "log": log},
        {"topic": name, "event": "fired", "labels": ["b"], "log": few},
    ]
    arrays.statistics.load_state_dict(from_tensors(to_tensors(state)), [Kinds])
    batch = arrays.play(lambda _: [([2], {"kind": "a", "value": 1})], STEPS[2:N_STEPS])
    found = {key[3]: dict(column.per_episode()) for key, column in batch.statistics.items()}
    assert found == {("a",): {0: 2.0, 2: 4.5}, ("b",): {2: 4.0}}


def test_statistics_of_wrappers_may_be_numbers_in_some_episodes_and_arrays_in_others() -> None:
    arrays = Arrays(topic_of(sum, sum))
    key = ("Topic", "wrapped", None, ())
    for which, column in (
        (np.array([1]), StatColumn(np.array([0]), np.array([5.0]))),
        (np.array([0, 2]), StatColumn(np.array([0, 1]), np.arange(6.0).reshape(3, 2), np.array([2, 1]))),
    ):
        arrays.statistics.end_episodes(which, np.ones(len(which), np.int64), {}, None, {key: column})
    batch = arrays.statistics.drain([])
    values = [np.array((summary.statistics | summary.samples)[key]).tolist() for summary in batch]
    assert [sorted(summary.samples) for summary in batch] == [[key], [], [key]]
    joined = [np.array(value).tolist() for _, value in batch.all_columns()[key].per_episode()]
    assert joined == values
    assert values == [[[0.0, 1.0], [2.0, 3.0]], 5.0, [[4.0, 5.0]]]
