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
