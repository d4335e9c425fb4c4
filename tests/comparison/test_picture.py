"""The picture of a comparison: numbers of its axes, which must not overlap."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from maze_pl.comparison.picture import draw_comparison
from maze_pl.comparison.results import Comparison, EntrySummary, MetricSummary


def comparison(low: float, high: float) -> Comparison:
    names = ("return", "kpi/profit", "kpi/cost")
    entries = []
    for name, mean in (("outputs/a_run_with_a_long_name", low), ("rule", high)):
        width = 0.05 * abs(high - low)
        summary = MetricSummary(10, mean, (mean - width, mean + width), mean, (mean - width, mean + width))
        entries.append(EntrySummary(name, [name], [name], 1, name == "rule", dict.fromkeys(names, summary)))
    options: Any = {"lower_is_better": False, "n_episodes": 10, "seed": 0, "max_steps": 0, "deterministic": True}
    return Comparison("return", entries=entries, differences=[], winner=None, n_comparisons=0, **options)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-19_700.0, 15_693.0, "\N{MINUS SIGN}10,000"),
        (-8_123_456.0, 9_345_678.0, "10,000,000"),
        (0.21, 0.78, "0.4"),
    ],
)
def test_numbers_of_an_axis_do_not_overlap(low: float, high: float, text: str) -> None:
    figure = draw_comparison(comparison(low, high))
    figure.canvas.draw()
    for axes in figure.axes:
        ends = axes.get_xlim()
        labels = [label for label in axes.get_xticklabels() if ends[0] <= label.get_position()[0] <= ends[1]]
        assert text in [label.get_text() for label in labels]
        extents = [label.get_window_extent() for label in labels]
        assert len(extents) > 1
        assert not [pair for pair in itertools.pairwise(extents) if pair[0].x1 + 3 > pair[1].x0]
