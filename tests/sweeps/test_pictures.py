"""Pictures of sweeps: the values that label their axes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maze_pl.sweeps.pictures import draw_parallel_coordinates
from maze_pl.sweeps.result import Trial
from maze_pl.sweeps.search_space import parse_search


def labels(search: Any) -> list[str]:
    """Texts at the axis of the only searched option, from the lowest."""
    (parameter,) = parse_search({"model.lr": search})
    trials = []
    for number, value in enumerate(parameter.samples()):
        assignment = {"model.lr": value}
        trials.append(Trial(number, "finished", assignment, (float(number),), {}, Path("run"), 1.0, ""))
    objective = SimpleNamespace(metric="eval/return", direction="maximize")
    result: Any = SimpleNamespace(plan=SimpleNamespace(parameters=[parameter], objectives=[objective]))
    (axes, _) = draw_parallel_coordinates(result, trials).axes
    return [text.get_text() for text in axes.texts if text.xy[0] == 1]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({"low": 0.1, "high": 0.7, "step": 0.1}, ["0.1", "0.3", "0.4", "0.5", "0.7"]),
        ({"low": 0.1, "high": 0.3, "step": 0.2}, ["0.1", "0.3"]),
        ({"low": 16, "high": 76, "step": 20}, ["16", "36", "56", "76"]),
        ({"low": 1, "high": 3}, ["1", "2", "3"]),
        ({"low": 1000, "high": 1234, "step": 117}, ["1000", "1117", "1234"]),
        ({"low": 0.0, "high": 1.0}, ["0", "0.25", "0.5", "0.75", "1"]),
        ({"low": 1, "high": 10_000, "log": True}, ["1", "10", "100", "1000", "10000"]),
    ],
)
def test_the_axis_of_a_range_is_labelled_with_values_that_are_tried(search: Any, expected: list[str]) -> None:
    assert labels(search) == expected


@pytest.mark.parametrize("step", [0.05, 0.1, 0.15, 0.2, 0.25, 0.3])
def test_labels_between_the_ends_are_values_of_the_grid(step: float) -> None:
    search = {"low": 0.1, "high": 0.9, "step": step}
    (parameter,) = parse_search({"model.lr": search})
    grid = [f"{value:.3g}" for value in parameter.grid()]
    found = labels(search)
    assert set(found) <= set(grid) and (found[0], found[-1]) == (grid[0], grid[-1])
