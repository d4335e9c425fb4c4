"""Pictures of the cutting problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maze_pl.envs.cutting_2d.objects import Cutting2DMazeAction, Cutting2DMazeState, fits
from maze_pl.envs.rendering import Renderer
from maze_pl.events.display import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_ORDER = "#dd8452"
_CHOSEN = "#8da0cb"
_FITTING = "#dbe4f2"
_OTHER = "#eeeeee"
_LINE = "#444444"
_LABELS = {"chosen": _CHOSEN, "order fits": _FITTING, "order does not fit": _OTHER}


class Cutting2DRenderer(Renderer):
    """Draws the chosen piece and its cuts on the left, the stock to scale on the right.

    Needs the extra `rendering`.
    """

    def render(self, maze_state: Cutting2DMazeState, maze_action: Any = None, events: Any = (), **_: Any) -> Figure:
        """Draw one step; see `Renderer.render`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        require_matplotlib(type(self).__name__)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4.5))  # without a layout engine, which would take as long as the drawing
        left = figure.add_axes((0.01, 0.1, 0.48, 0.82), frame_on=False)
        right = figure.add_axes((0.51, 0.1, 0.48, 0.82), frame_on=False)
        _draw_cuts(left, maze_state, maze_action)
        _draw_stock(right, maze_state, -1 if maze_action is None else maze_action.piece_id)
        for axes in (left, right):
            axes.xaxis.set_visible(False)
            axes.yaxis.set_visible(False)
            axes.set(aspect="equal", anchor="NW")
            axes.autoscale_view()
        return figure


def _draw_cuts(axes: Axes, maze_state: Cutting2DMazeState, maze_action: Cutting2DMazeAction | None) -> None:
    """Draw the chosen piece, the order in its corner, and the two numbered cuts."""
    width, height = maze_state.current_demand
    index = -1 if maze_action is None else maze_action.piece_id
    title = f"order {width} x {height}: "
    _rectangle(axes, 0, 0, *maze_state.raw_piece_size, "none", linestyle=":")
    if maze_action is None or not 0 <= index < len(maze_state.inventory):
        _rectangle(axes, 0, 0, width, height, _ORDER)
        axes.set_title(f"{title}{'nothing' if maze_action is None else 'an empty slot'} chosen", loc="left")
        return
    x, y = maze_state.inventory[index]
    reverse = maze_action.reverse_cutting_order
    if maze_action.rotate:
        width, height = height, width
        title = f"{title}turned, "
    fitting = width <= x and height <= y
    axes.set_title(f"{title}from piece {index}, {x} x {y}{'' if fitting else ', but does not fit'}", loc="left")
    _rectangle(axes, 0, 0, x, y, _CHOSEN)
    _rectangle(axes, 0, 0, width, height, _ORDER)
    if not fitting:
        return
    vertical = ((width, width), (0, height if reverse else y))
    horizontal = ((0, x if reverse else width), (height, height))
    cuts = [horizontal, vertical] if reverse else [vertical, horizontal]
    for number, (xs, ys) in enumerate(cuts, start=1):
        axes.plot(xs, ys, "--", color=_LINE, linewidth=2)
        axes.annotate(f"cut {number}", (xs[1], ys[1]), (4, 4), textcoords="offset points")


def _draw_stock(axes: Axes, maze_state: Cutting2DMazeState, chosen: int) -> None:
    """Draw all pieces in rows, the oldest at the top left; highlight those that the order fits."""
    from matplotlib.collections import PolyCollection
    from matplotlib.lines import Line2D

    pieces, gap = maze_state.inventory, 0.1 * max(maze_state.raw_piece_size)
    row_width = max((1.6 * sum((x + gap) * (y + gap) for x, y in pieces)) ** 0.5, maze_state.raw_piece_size[0])
    left = top = row_height = 0.0
    corners: list[list[tuple[float, float]]] = []
    colours: list[str] = []
    for index, (x, y) in enumerate(pieces):
        if left + x > row_width:
            top -= row_height + gap
            left = row_height = 0.0
        colour = _FITTING if fits(maze_state.current_demand, (x, y)) else _OTHER
        if index == chosen:
            colour = _CHOSEN
        corners.append([(left, top - y), (left + x, top - y), (left + x, top), (left, top)])
        colours.append(colour)
        if min(x, y) > 0.07 * row_width:
            axes.text(left + x / 2, top - y / 2, str(index), ha="center", va="center", fontsize=8)
        left, row_height = left + x + gap, max(row_height, y)
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=_LINE))
    for place, (label, colour) in enumerate(_LABELS.items()):  # a legend would take as long as everything else
        axes.figure.text(0.53 + 0.15 * place, 0.04, label)
        axes.figure.add_artist(Line2D([0.52 + 0.15 * place], [0.05], marker="s", color=colour, markeredgecolor=_LINE))
    axes.set_title(f"{len(pieces)} of at most {maze_state.max_pieces_in_inventory} pieces in stock", loc="left")


def _rectangle(axes: Axes, left: float, bottom: float, x: float, y: float, colour: str, linestyle: str = "-") -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((left, bottom), x, y, facecolor=colour, edgecolor=_LINE, linestyle=linestyle))
