"""Numbers that algorithms record, combined over an epoch."""

from __future__ import annotations

import io
import math
from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.core.episode import MAX_SAMPLED_EPISODES, EpisodeSummary
from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import MazeEnvMonitoringWrapper, TimeLimitWrapper
from maze_pl.modules.run_statistics import RunStatistics, episode_means


@pytest.mark.parametrize(
    ("recorded", "mean"),
    [
        ([math.inf, -math.inf, 1.0], math.nan),
        ([math.inf, 1.0, 2.0], math.inf),
        ([1e308, 1e308, 1e308], math.inf),
        ([1e20, 1.0, -1e20], 1.0 / 3.0),
    ],
)
def test_recorded_numbers_of_any_size_have_a_mean(recorded: list[float], mean: float) -> None:
    statistics = RunStatistics()
    for number in recorded:
        statistics.record("MyEvents/margin", torch.tensor(number, dtype=torch.float64), None, 1.0)
    values = statistics.finish_training().values
    assert values["MyEvents/margin"] == pytest.approx(mean, nan_ok=True)


def test_kpis_with_infinities_of_both_signs_have_a_mean_that_is_no_number() -> None:
    summaries = []
    for value in (math.inf, -math.inf):
        summaries.append(EpisodeSummary({}, 3, 1.0, {"margin": value}))
    assert episode_means(summaries) == pytest.approx({"return": 1.0, "kpi/margin": math.nan}, nan_ok=True)


def test_sources_that_play_have_a_count_of_episodes_before_one_has_ended() -> None:
    statistics = RunStatistics()
    statistics.record("MyEvents/loss", 0.5, None, 1.0)
    assert statistics.finish_training().values == {"MyEvents/loss": 0.5}
    statistics.add_episodes("train", [])
    resumed = RunStatistics()
    resumed.load_rank_state_dict(statistics.rank_state_dict())
    for run in (statistics, resumed):
        values = run.finish_training().values
        counts = ("episode_count", "total_episode_count", "total_step_count")
        assert values == {f"BaseEnvEvents/reward/{name}": 0.0 for name in counts}


def test_a_resumed_run_begins_an_unfinished_evaluation_again() -> None:
    statistics, resumed = RunStatistics(), RunStatistics()
    episodes = [EpisodeSummary({}, 3, 1.0)]
    statistics.add_episodes("train", episodes)
    saved = statistics.rank_state_dict()
    statistics.add_episodes("eval", episodes)
    assert statistics.rank_state_dict() == saved
    earlier = {"recorded": {}, "pending": {"eval": saved["pending"]["train"]}}  # written by version 0.2.0
    resumed.load_rank_state_dict(earlier)
    resumed.add_episodes("eval", episodes)
    assert resumed.finish_evaluation()["eval"].values["BaseEnvEvents/reward/episode_count"] == 1


WRAPPERS: list[Any] = [
    partial(TimeLimitWrapper, max_episode_steps=2),
    partial(MazeEnvMonitoringWrapper, observation_logging=True, action_logging=False, reward_logging=True),
]


def drained(make_vector: Any, n_parts: int = 4) -> list[Any]:
    """Play 160 episodes, and return them in parts."""
    vector = make_vector(seed=1)
    vector.reset()
    parts = []
    for _ in range(n_parts):
        for _ in range(10):
            vector.step()
        parts.append(vector.drain_summaries())
    return parts


def written_and_read(statistics: RunStatistics) -> RunStatistics:
    """Return the statistics of a run that is resumed within an epoch."""
    file = io.BytesIO()
    torch.save(statistics.rank_state_dict(), file)
    file.seek(0)
    resumed = RunStatistics()
    resumed.load_rank_state_dict(torch.load(file, weights_only=True))
    return resumed


@pytest.mark.parametrize("is_resumed", [False, True])
def test_arrays_keep_the_samples_of_the_same_episodes_as_single_environments(is_resumed: bool) -> None:
    makers = [
        partial(ArrayVectorEnv, partial(make_wrapped_arrays, CartPoleArrayEnv, WRAPPERS), 8),
        partial(SequentialVectorEnv, [partial(make_wrapped, CartPoleArrayEnv, WRAPPERS)] * 8),
    ]
    tables = []
    for maker in makers:
        statistics = RunStatistics()
        for number, episodes in enumerate(drained(maker)):
            assert len(episodes) == 40
            statistics.add_episodes("train", episodes)
            if is_resumed and number in (1, 2):
                statistics = written_and_read(statistics)
        kept = [summary for part in statistics._pending["train"] for summary in part if summary.samples]
        assert len(kept) == MAX_SAMPLED_EPISODES
        tables.append(statistics.finish_training().values)
    assert tables[0] == tables[1]
    observations = tables[0]["ObservationEvents/observation_processed/substep_0/observation"]
    assert observations.count == MAX_SAMPLED_EPISODES * 2 * 4  # type: ignore[union-attr]
    assert tables[0]["BaseEnvEvents/reward/episode_count"] == 160.0
