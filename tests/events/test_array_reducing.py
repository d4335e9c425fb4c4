"""Statistics of many episodes at once equal those of single episodes; sums of arrays, those of Python's numbers."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from maze_pl.events import EventRecord, define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.events.array_reducing import GroupedEvents, reduced_episodes
from maze_pl.events.episode_statistics import EpisodeStatistics, episode_value, step_values
from maze_pl.events.topics import declarations

COUNTS = [3, 1, 4, 1]  # of the events of four episodes
STEPS = [0, 0, 2, 0, 1, 1, 1, 3, 1]
N_STEPS = [3, 2, 4, 2]
OUTPUTS = ["by_step", "passed", "mean", "own"]


class SumEvents:
    @define_epoch_stats(np.mean, input_name="by_step", output_name="by_step")
    @define_epoch_stats(np.mean, input_name="passed", output_name="passed")
    @define_epoch_stats(np.mean, input_name="mean", output_name="mean")
    @define_epoch_stats(np.mean, input_name="own", output_name="own")
    @define_episode_stats(sum, input_name="by_step", output_name="by_step")
    @define_episode_stats(sum, input_name="passed", output_name="passed")
    @define_episode_stats(np.mean, input_name="passed", output_name="mean")
    @define_episode_stats(lambda values: sum(values), input_name="own", output_name="own")
    @define_step_stats(sum, input_name="value", output_name="by_step")
    @define_step_stats(lambda values: sum(values), input_name="value", output_name="own")
    @define_step_stats(None, input_name="value", output_name="passed")
    def fired(self, value: Any) -> None: ...


def single(values: np.ndarray, steps: list[int], n_steps: int) -> dict[str | None, Any]:
    """Statistics of an episode by `EpisodeStatistics`."""
    statistics = EpisodeStatistics()
    statistics.declare(SumEvents)
    for step, value in zip(steps, values, strict=True):
        statistics.advance(step)
        statistics.receive(EventRecord(SumEvents, SumEvents.fired, {"value": value}, step))
    statistics.advance(n_steps)
    return {key[2]: value for key, value in statistics.end_episode().statistics.items()}


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint32", "int64", "bool", "float16", "float32", "float64"]
)
def test_sums_equal_those_of_single_episodes_and_of_pythons_numbers(dtype: str, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    size = (len(STEPS), *shape)
    if np.dtype(dtype).kind in "iu":
        large = min(np.iinfo(dtype).max, 2**40) // 2
        values = generator.integers(large, large + 50, size).astype(dtype)
    else:
        values = generator.uniform(0, 1000, size).astype(dtype)
        values[::2] = 0
    declaration = declarations(SumEvents)["fired"]
    columns: dict[str | None, np.ndarray] = {"value": values}
    grouped = GroupedEvents(declaration, np.array(COUNTS), np.array(STEPS), columns, np.array(N_STEPS)).statistics()
    for episode in range(len(COUNTS)):
        first = sum(COUNTS[:episode])
        chosen = slice(first, first + COUNTS[episode])
        expected = single(values[chosen], STEPS[chosen], N_STEPS[episode])
        for name in OUTPUTS:
            column = grouped[name]
            found: Any = column.values[episode]
            if column.counts is not None:
                end = np.cumsum(column.counts)[episode]
                found = column.values[end - column.counts[episode] : end]
            assert column.episodes.tolist() == [0, 1, 2, 3]
            np.testing.assert_array_equal(found, expected[name])
            exact = values[chosen].astype(object)  # Python's numbers
            total = sum(exact[1:], exact[0]) if name != "mean" else sum(exact.ravel()) / exact.size
            np.testing.assert_allclose(np.asarray(found, float), np.asarray(total, float), rtol=1e-14)


IN_ARRAYS = [sum, math.fsum, np.sum, np.mean, np.std, np.var, np.median, min, max, np.min, np.max]


def numbers_of(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values of events with many equal ones, zeros of both signs, and NaN in `nan`."""
    generator = np.random.default_rng(1)
    if kind == "bool":
        return generator.integers(2, size=shape).astype(np.bool_)
    if kind == "int":
        return generator.integers(-3, 4, size=shape)
    if kind == "large":
        return generator.integers(-(2**60), 2**60, size=shape)
    values = generator.normal(size=shape) * 10.0 ** generator.integers(-8, 9, size=shape)
    values[generator.random(shape) < 0.2] = 0.0
    values[generator.random(shape) < 0.2] = -0.0
    if kind == "nan":
        values[generator.random(shape) < 0.2] = np.nan
    return values


def bits(value: Any) -> list[str]:
    """Numbers as texts that differ if their bits do."""
    return [float(number).hex() for number in np.ravel(value).tolist()]


@pytest.mark.parametrize("kind", ["bool", "int", "large", "float", "nan"])
@pytest.mark.parametrize(
    ("reduce", "shape"),
    [*product(IN_ARRAYS, [()]), *product([np.sum, np.mean, np.std, np.var, np.median, np.min, np.max], [(3,), (2, 2)])],
)
def test_reductions_in_arrays_equal_the_functions_bit_for_bit(
    reduce: Callable[..., Any], kind: str, shape: tuple[int, ...]
) -> None:

    class Reduced:
        @define_epoch_stats(np.mean)
        @define_episode_stats(np.max)
        @define_step_stats(reduce)
        def fired(self, value: Any) -> None: ...

    counts = np.array([40, 0, 1, 23, 0])
    n_steps = np.array([12, 3, 1, 9, 0])
    generator = np.random.default_rng(2)
    steps = np.concatenate(
        [np.sort(generator.integers(n, size=count)) for n, count in zip(n_steps, counts, strict=True) if n]
    )
    values = numbers_of(kind, (len(steps), *shape))
    ends = np.cumsum(counts)
    events = GroupedEvents(declarations(Reduced)["fired"], counts, steps, {"value": values}, n_steps)
    (column,) = events.statistics().values()
    expected = {}
    for episode, (end, count) in enumerate(zip(ends, counts, strict=True)):
        listed = values[end - count : end].tolist() if not shape else list(values[end - count : end])
        by_step = step_values(reduce, steps[end - count : end].tolist(), listed, int(n_steps[episode]))
        result = episode_value(np.max, by_step)
        if result is not None:
            expected[episode] = bits(result)
    assert {episode: bits(value) for episode, value in column.per_episode()} == expected
    by_episode = {}
    for episode, (end, count) in enumerate(zip(ends, counts, strict=True)):
        listed = values[end - count : end].tolist() if not shape else list(values[end - count : end])
        result = episode_value(reduce, listed)
        if result is not None:
            by_episode[episode] = bits(result)
    column = reduced_episodes(reduce, values, counts)
    assert {episode: bits(value) for episode, value in column.per_episode()} == by_episode


@pytest.mark.parametrize("reduce", [*IN_ARRAYS, len, None])
def test_usual_reductions_of_steps_are_made_of_all_episodes_at_once(
    reduce: Callable[..., Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reduced:
        @define_epoch_stats(np.mean)
        @define_episode_stats(np.max)
        @define_step_stats(reduce)
        def fired(self, value: Any) -> None: ...

    def refuse(*_: Any) -> None:
        raise AssertionError("one call for each episode")

    monkeypatch.setattr("maze_pl.events.array_reducing.step_values", refuse)
    monkeypatch.setattr("maze_pl.events.array_reducing.episode_value", refuse)
    columns: dict[str | None, np.ndarray] = {"value": np.arange(9.0)}
    events = GroupedEvents(
        declarations(Reduced)["fired"], np.array(COUNTS), np.array(STEPS), columns, np.array(N_STEPS)
    )
    (column,) = events.statistics().values()
    assert len(column.values) == 4


STEP_REDUCERS = [len, sum, np.sum, math.fsum]
EPISODE_REDUCERS = [len, sum, math.fsum, np.sum, np.mean, np.std, min, max, np.min, np.max, None]


@pytest.mark.parametrize("kind", ["int", "large", "float", "nan"])
@pytest.mark.parametrize(("step", "episode"), [*product(STEP_REDUCERS, EPISODE_REDUCERS)])
def test_steps_without_events_count_as_zeros_bit_for_bit(step: Any, episode: Any, kind: str) -> None:
    class Reduced:
        @define_epoch_stats(np.mean)
        @define_episode_stats(episode)
        @define_step_stats(step)
        def fired(self, value: Any) -> None: ...

    n_steps = np.array([12, 3, 1, 9, 0, 200, 2])
    counts = np.array([7, 0, 1, 30, 0, 5, 2])
    generator = np.random.default_rng(4)
    parts = [np.sort(generator.integers(n, size=count)) for n, count in zip(n_steps, counts, strict=True) if n]
    parts[-1][...] = (0, 1)  # an episode with events in each step
    steps = np.concatenate(parts)
    values = numbers_of(kind, (len(steps),))
    events = GroupedEvents(declarations(Reduced)["fired"], counts, steps, {"value": values}, n_steps)
    (column,) = events.statistics().values()
    expected = {}
    ends = np.cumsum(counts)
    for number, (end, count) in enumerate(zip(ends, counts, strict=True)):
        part = slice(end - count, end)
        by_step = step_values(step, steps[part].tolist(), values[part].tolist(), int(n_steps[number]))
        result = episode_value(episode, by_step)
        if result is not None and (episode is not None or np.size(result)):
            expected[number] = bits(result)
    assert {number: bits(value) for number, value in column.per_episode()} == expected


@pytest.mark.parametrize(("step", "episode"), [(len, sum), (len, np.mean), (sum, max), (sum, sum), (np.sum, len)])
def test_groups_of_few_events_in_long_episodes_take_memory_for_their_events_only(step: Any, episode: Any) -> None:
    class Reduced:
        @define_epoch_stats(np.mean)
        @define_episode_stats(episode)
        @define_step_stats(step)
        def fired(self, value: Any) -> None: ...

    n_episodes, length = 100, 1_000_000
    ones = np.ones(n_episodes, np.int64)
    events = GroupedEvents(declarations(Reduced)["fired"], ones, 5 * ones, {"value": 2 * ones}, length * ones)
    tracemalloc.start()
    try:
        (column,) = events.statistics().values()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000 < length * n_episodes
    expected = {(len, sum): 1.0, (len, np.mean): 1e-6, (np.sum, len): 1e6}.get((step, episode), 2.0)
    assert column.values.tolist() == [expected] * n_episodes


def odd_ones_alone(values: list[Any]) -> Any:
    """A number for an odd number of values, otherwise an array whose shape depends on it."""
    return float(len(values)) if len(values) % 2 else np.ones((2, len(values)))


@pytest.mark.parametrize("counts", [[3, 1], [2, 2], [4, 2, 3], [0, 2, 1, 0]])
def test_episodes_may_be_reduced_to_numbers_and_to_arrays_of_different_shapes(counts: list[int]) -> None:
    column = reduced_episodes(odd_ones_alone, np.arange(float(sum(counts))), np.array(counts))
    expected = {episode: odd_ones_alone([0.0] * count) for episode, count in enumerate(counts) if count}
    found = dict(column.per_episode())
    assert found.keys() == expected.keys()
    for episode, value in expected.items():
        np.testing.assert_array_equal(found[episode], value, strict=isinstance(value, np.ndarray))
