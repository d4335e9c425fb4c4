from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.episode import MAX_SAMPLED_EPISODES, EpisodeSummary, thin_out
from maze_pl.modules.run_statistics import RunStatistics

KEY = ("ObservationEvents", "observation_processed", None, ("substep_0", "heap"))


def summary(env_index: int, episode_index: int, sampled: bool = True) -> EpisodeSummary:
    samples = {KEY: np.array([[env_index, episode_index]], np.float32)} if sampled else {}
    return EpisodeSummary({}, 1, 1.0, {}, env_index, episode_index, samples)


def kept(summaries: list[EpisodeSummary]) -> set[tuple[int, int]]:
    return {(one.env_index, one.episode_index) for one in summaries if one.samples}


def test_samples_of_a_bounded_number_of_episodes_are_kept_the_same_ones_however_they_arrive() -> None:
    at_once = [summary(env, episode) for env in range(8) for episode in range(60)]
    thin_out(at_once)
    one_by_one: list[EpisodeSummary] = []
    for episode in range(60):
        for env in reversed(range(8)):
            one_by_one.append(summary(env, episode))
            thin_out(one_by_one)
    assert len(at_once) == len(one_by_one) == 480
    assert kept(at_once) == kept(one_by_one)
    assert len(kept(at_once)) == MAX_SAMPLED_EPISODES
    assert {env for env, _ in kept(at_once)} == set(range(8))
    assert min(sum(episode // 20 == third for _, episode in kept(at_once)) for third in range(3)) > 15


def test_few_episodes_keep_their_samples_and_those_without_do_not_count() -> None:
    summaries = [summary(0, episode, sampled=episode % 2 == 0) for episode in range(2 * MAX_SAMPLED_EPISODES)]
    thin_out(summaries)
    assert len(kept(summaries)) == MAX_SAMPLED_EPISODES


def test_a_run_forgets_samples_while_an_epoch_is_under_way_and_counts_all_episodes() -> None:
    statistics = RunStatistics()
    for episode in range(300):
        statistics.add_episodes("train", [summary(0, episode)])
    state = statistics.rank_state_dict()["pending"]["train"]
    assert sum(bool(entry["samples"]) for entry in state) == MAX_SAMPLED_EPISODES
    resumed = RunStatistics()
    resumed.load_rank_state_dict(statistics.rank_state_dict())
    tables = [run.finish_training() for run in (statistics, resumed)]
    name = "ObservationEvents/observation_processed/substep_0/heap"
    assert tables[0].values[name] == tables[1].values[name]
    assert tables[0].values[name].count == 2 * MAX_SAMPLED_EPISODES  # type: ignore[union-attr]
    assert tables[0].values["BaseEnvEvents/reward/episode_count"] == 300.0


def bits(value: Any) -> Any:
    """Something that is equal only if every bit is."""
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value.hex() if isinstance(value, float) else value


def written(given: EpisodeSummary) -> EpisodeSummary:
    """The same episode, from a checkpoint that was written before its epoch ended."""
    statistics, resumed, file = RunStatistics(), RunStatistics(), io.BytesIO()
    statistics.add_episodes("train", [given])
    torch.save(statistics.rank_state_dict(), file)
    file.seek(0)
    resumed.load_rank_state_dict(torch.load(file, weights_only=True))
    ((again,),) = resumed._pending["train"]
    return again


@pytest.mark.parametrize("values", [np.array([0.1, -0.0, np.inf, 1e-320, 1 / 3]), np.array([[2**53 + 1]])])
@pytest.mark.parametrize("dtype", [None, np.float32])
def test_episodes_of_an_epoch_that_has_not_ended_survive_being_written_to_the_bit(
    values: np.ndarray, dtype: Any
) -> None:
    given = EpisodeSummary({KEY: values.astype(dtype or values.dtype)}, 3, 0.1 + 0.2, {"k": 1 / 3}, 1, 2)
    again = written(given)
    assert bits(again.statistics) == bits(given.statistics)
    assert (again.reward.hex(), again.kpis) == (given.reward.hex(), given.kpis)
    assert (again.env_steps, again.env_index, again.episode_index) == (3, 1, 2)
    assert written(summary(3, 4)).samples[KEY].tolist() == [[3.0, 4.0]]


def test_numbers_of_numpy_may_be_written_too() -> None:
    given = EpisodeSummary({}, np.int64(3), np.float32(0.5), {"k": np.float64(1.0)}, np.int64(1), np.int64(2))  # type: ignore[arg-type]
    again = written(given)
    assert (again.env_steps, again.reward, again.kpis, again.env_index, again.episode_index) == (3, 0.5, {"k": 1}, 1, 2)
