"""Pictures of a step."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from maze_pl.envs.cutting_2d import Cutting2DMazeAction, Cutting2DMazeState, Cutting2DRenderer
from maze_pl.envs.rendering import figure_to_array

figure_module = pytest.importorskip("matplotlib.figure")
lines_module = pytest.importorskip("matplotlib.lines")
to_rgba = pytest.importorskip("matplotlib.colors").to_rgba
STATE = Cutting2DMazeState([(4, 3), (1, 2), (3, 1)], 50, (1, 2), (4, 3))


def draw(action: Cutting2DMazeAction | None, state: Cutting2DMazeState = STATE) -> tuple[Any, Any]:
    figure = Cutting2DRenderer().render(state, action)
    assert isinstance(figure, figure_module.Figure)
    cuts, stock = figure.axes
    return cuts, stock


def rectangles(axes: Any) -> list[tuple[float, float, float, float]]:
    """Left, bottom, width and height."""
    return [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in axes.patches]


def pieces_in_stock(axes: Any) -> list[tuple[float, float, float, float]]:
    """Left, bottom, width and height of each piece."""
    (stock,) = axes.collections
    found = []
    for path in stock.get_paths():
        box = path.get_extents()
        found.append(tuple(round(float(number), 9) for number in (box.x0, box.y0, box.width, box.height)))
    return found


def lines(axes: Any) -> list[list[list[float]]]:
    return [[list(map(float, data)) for data in line.get_data()] for line in axes.lines]


@pytest.mark.parametrize(
    ("rotate", "reverse", "order", "cuts"),
    [
        (False, False, (1, 2), [[[1, 1], [0, 3]], [[0, 1], [2, 2]]]),  # right across from bottom to top, then the rest
        (False, True, (1, 2), [[[0, 4], [2, 2]], [[1, 1], [0, 2]]]),
        (True, False, (2, 1), [[[2, 2], [0, 3]], [[0, 2], [1, 1]]]),
        (True, True, (2, 1), [[[0, 4], [1, 1]], [[2, 2], [0, 1]]]),
    ],
)
def test_the_chosen_piece_is_drawn_with_the_order_and_its_cuts(
    rotate: bool, reverse: bool, order: tuple[int, int], cuts: list[Any]
) -> None:
    axes, _ = draw(Cutting2DMazeAction(0, rotate, reverse))
    assert rectangles(axes) == [(0, 0, 4, 3), (0, 0, 4, 3), (0, 0, *order)]  # a raw piece, the chosen one, the order
    assert lines(axes) == cuts
    assert [text.get_text() for text in axes.texts] == ["cut 1", "cut 2"]
    turned = "turned, " if rotate else ""
    assert axes.get_title(loc="left") == f"order 1 x 2: {turned}from piece 0, 4 x 3"


def test_the_stock_is_drawn_to_scale_and_says_what_fits() -> None:
    _, axes = draw(
        Cutting2DMazeAction(0, False, False), Cutting2DMazeState([*STATE.inventory, (1, 1)], 50, (1, 2), (4, 3))
    )
    assert [piece[2:] for piece in pieces_in_stock(axes)] == [(4, 3), (1, 2), (3, 1), (1, 1)]
    chosen, upright, turned, too_small = map(tuple, axes.collections[0].get_facecolor().tolist())
    assert upright == turned
    assert len({chosen, upright, too_small}) == 3
    assert axes.get_title(loc="left") == "4 of at most 50 pieces in stock"
    labels = [text.get_text() for text in axes.figure.texts]
    assert labels == ["chosen", "order fits", "order does not fit"]
    shown = [to_rgba(line.get_color()) for line in axes.figure.findobj(lines_module.Line2D)]
    assert {chosen, upright, too_small} <= set(shown)


def test_no_two_pieces_lie_on_each_other() -> None:
    pieces = [(1 + i * 7 % 9, 1 + i * 5 % 7) for i in range(80)]
    _, axes = draw(None, Cutting2DMazeState(pieces, 100, (1, 2), (10, 8)))
    placed = pieces_in_stock(axes)
    assert [rectangle[2:] for rectangle in placed] == pieces
    for i, (left, bottom, x, y) in enumerate(placed):
        for other_left, other_bottom, other_x, other_y in placed[:i]:
            apart = left >= other_left + other_x or other_left >= left + x
            assert apart or bottom >= other_bottom + other_y or other_bottom >= bottom + y


@pytest.mark.parametrize(
    ("action", "title"),
    [
        (None, "order 1 x 2: nothing chosen"),
        (Cutting2DMazeAction(7, False, False), "order 1 x 2: an empty slot chosen"),
        (Cutting2DMazeAction(1, True, False), "order 1 x 2: turned, from piece 1, 1 x 2, but does not fit"),
    ],
)
def test_what_cannot_be_cut_is_drawn_without_cuts(action: Cutting2DMazeAction | None, title: str) -> None:
    axes, _ = draw(action)
    assert axes.get_title(loc="left") == title
    assert lines(axes) == []


def test_pictures_are_equal_for_equal_steps_and_differ_with_the_action() -> None:
    def pixels(action: Cutting2DMazeAction | None, state: Cutting2DMazeState = STATE) -> Any:
        return figure_to_array(Cutting2DRenderer().render(state, action))

    first = pixels(Cutting2DMazeAction(0, False, False))
    assert (first == pixels(Cutting2DMazeAction(0, False, False))).all()
    assert (first != pixels(Cutting2DMazeAction(0, False, True))).any()
    assert pixels(None, Cutting2DMazeState([], 50, (1, 2), (4, 3))).std() > 0


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"Cutting2DRenderer needs matplotlib: pip install .*rendering"):
        Cutting2DRenderer().render(STATE)
