"""Charts: the numbers of their axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maze_pl.reports.chart_drawing import draw_charts
from maze_pl.reports.curves import Chart, Curve, band


@pytest.mark.parametrize(
    ("values", "shown", "not_shown"),
    [
        ([-19_000.0, 16_000.0], "\N{MINUS SIGN}10,000", "-10000"),
        ([0.0, 12_000_000.0], "10,000,000", "1e7"),
        ([0.0, 1.0], "0.2", "0,2"),
    ],
)
def test_thousands_of_values_and_steps_have_separators(values: list[float], shown: str, not_shown: str) -> None:
    curve = Curve(Path("run"), np.array([0.0, 50_000.0]), np.array(values))
    figure = draw_charts([Chart("eval/return", "env_steps", [band("a", [curve])])])
    figure.canvas.draw()
    (axes,) = figure.axes
    numbers = [label.get_text() for label in axes.get_yticklabels()]
    assert shown in numbers and not_shown not in numbers
    assert "20,000" in [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize(("n", "n_runs"), [(1, 3), (4, 1), (10, 1), (10, 2)])
def test_the_legend_is_above_the_curves_and_has_room_there(n: int, n_runs: int) -> None:
    x = np.linspace(0.0, 50_000.0, 40)
    bands = []
    for number in range(n):
        runs = [Curve(Path(f"{number}_{run}"), x, x * number + run) for run in range(n_runs)]
        bands.append(band(f"outputs/experiment_{number}", runs))
    figure = draw_charts([Chart(name, "env_steps", bands) for name in ("eval/return", "eval/kpi/cost")])
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        inside = axes.get_window_extent()
        assert legend.y0 >= inside.y1 and legend.x1 <= figure.bbox.x1 and legend.y1 <= figure.bbox.y1
        assert inside.height > 0.5 * 3.6 * figure.dpi
        assert len(axes.get_legend().get_texts()) == n
