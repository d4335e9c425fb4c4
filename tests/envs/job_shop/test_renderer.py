"""Gantt charts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.job_shop import JobShopInstance, JobShopMazeAction, JobShopRenderer, job_shop_factory
from maze_pl.envs.rendering import figure_to_array
from tests.envs.job_shop.reference import TWO_BY_TWO

pytest.importorskip("matplotlib")
PAIR = JobShopInstance.of("pair", 2, TWO_BY_TWO, lower_bound=8, best_known=8)


def chart(actions: list[int], action: JobShopMazeAction | None = None) -> Any:
    env = job_shop_factory([PAIR], max_jobs=3)
    env.reset(seed=0)
    for option in actions:
        env.step({"option": option})
    (axes,) = JobShopRenderer().render(env.get_maze_state(), action).axes
    return axes


def boxes(collection: Any) -> set[tuple[float, float, int]]:
    """Start, end and row of each bar."""
    found = set()
    for path in collection.get_paths():
        box = path.get_extents()
        found.add((float(box.x0), float(box.x1), round(float(box.y0 + box.y1) / 2)))
    return found


def test_bars_are_the_schedule_and_the_last_one_is_outlined() -> None:
    axes = chart([1, 0, 1, 0])
    bars, outline = axes.collections
    assert boxes(bars) == {(0, 2, 0), (2, 5, 0), (2, 6, 1), (6, 8, 1)}
    assert boxes(outline) == {(6, 8, 1)}
    assert {text.get_text() for text in axes.texts} == {"0", "1", "makespan 8", "best known 8"}
    assert "4 of 4 operations scheduled   last: operation 1 of job 0 on M1, 6 to 8" in axes.get_title(loc="left")


def test_the_operation_of_the_action_is_drawn_and_outlined() -> None:
    axes = chart([1], JobShopMazeAction(0))
    bars, outline = axes.collections
    assert boxes(bars) == {(0, 2, 0), (2, 5, 0)}
    assert boxes(outline) == {(2, 5, 0)}
    assert "next: operation 0 of job 0 on M0, 2 to 5" in axes.get_title(loc="left")
    assert "bound 7" in {text.get_text() for text in axes.texts}


def test_jobs_have_their_own_colours_and_machines_their_rows() -> None:
    axes = chart([1, 0, 1, 0])
    colours = {tuple(colour) for colour in axes.collections[0].get_facecolors()}
    assert len(colours) == 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["M0", "M1"]


def test_an_empty_schedule_and_a_forbidden_choice_are_drawn() -> None:
    axes = chart([])
    assert not axes.collections
    assert axes.get_title(loc="left").endswith("0 of 4 operations scheduled")
    axes = chart([], JobShopMazeAction(2))
    assert "job 2 chosen, which is not allowed" in axes.get_title(loc="left")


def test_a_step_is_rendered_by_the_environment() -> None:
    env = job_shop_factory([PAIR])
    env.reset(seed=0)
    env.step({"option": 1})
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    expected = job_shop_factory([PAIR])
    expected.reset(seed=0)
    drawn = figure_to_array(JobShopRenderer().render(expected.get_maze_state(), JobShopMazeAction(1)))
    env.reset(seed=0)
    env.step({"option": 1})
    assert (env.render() == drawn).all()
