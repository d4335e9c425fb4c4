"""Numbers that algorithms record, combined over an epoch."""

from __future__ import annotations

import math

import pytest
import torch

from maze_pl.core.episode import EpisodeSummary
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
