"""Sums of arrays in many episodes at once equal those of single episodes, and of Python's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.events import EventRecord, define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.events.array_reducing import GroupedEvents
from maze_pl.events.episode_statistics import EpisodeStatistics
from maze_pl.events.topics import declarations

COUNTS = [3, 1, 4, 1]  # of the events of four episodes
STEPS = [0, 0, 2, 0, 1, 1, 3, 1, 1]
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
