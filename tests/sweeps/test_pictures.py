"""Pictures of sweeps: the values that label their axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from maze_pl.sweeps.pictures import draw_parallel_coordinates, draw_slices
from maze_pl.sweeps.result import Trial
from maze_pl.sweeps.search_space import parse_search


def swept(search: Any, values: Iterable[Any]) -> tuple[Any, list[Trial]]:
    """A sweep of one option with a finished trial for each value, and these trials."""
    trials = []
    for number, value in enumerate(values):
        assignment = {"model.lr": value}
        trials.append(Trial(number, "finished", assignment, (float(number),), {}, Path("run"), 1.0, ""))
    objective = SimpleNamespace(metric="eval/return", direction="maximize")
    plan = SimpleNamespace(parameters=parse_search({"model.lr": search}), objectives=[objective])
    return SimpleNamespace(plan=plan), trials


def labels(search: Any) -> list[str]:
    """Texts at the axis of the only searched option, from the lowest."""
    (parameter,) = parse_search({"model.lr": search})
    (axes, _) = draw_parallel_coordinates(*swept(search, parameter.samples())).axes
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


def test_a_log_axis_shows_the_range_with_a_few_labels_that_do_not_overlap() -> None:
    values = [7e-4, 9e-3, 2e-3, 3e-3, 4e-3]
    figure = draw_slices(*swept({"low": 1.0e-4, "high": 1.0e-2, "log": True}, values))
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    assert 0.5e-4 < low < 1e-4 and 1e-2 < high < 2e-2
    shown = [tick.label1 for tick in [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]]
    assert [text.get_text() for text in shown] == ["0.0001", "0.001", "0.01"]
    boxes = [text.get_window_extent() for text in shown]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_trials_with_equal_choices_do_not_hide_each_other_and_lines_do_not_run_through_texts() -> None:
    (axes, _) = draw_parallel_coordinates(*swept([0.1, 0.5], [0.1, 0.1, 0.1])).axes
    heights = [line.get_ydata()[1] for line in axes.lines if len(line.get_ydata()) == 2 and line.get_alpha()]
    assert len(set(heights)) == 3 and max(map(abs, heights)) < 0.1
    assert all(text.get_bbox_patch() is not None and text.get_zorder() > 3 for text in axes.texts)
