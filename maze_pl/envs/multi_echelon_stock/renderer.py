"""Pictures of the chain of stocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maze_pl.envs.multi_echelon_stock.objects import StockMazeState
from maze_pl.envs.rendering import Renderer
from maze_pl.events.display import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#2b2d33"
_FAINT = "#8a8f99"
_STOCK = "#4c78a8"
_OWED = "#c0392b"
_TRANSIT = "#9ecae9"
_ORDER = "#dd8452"
_DEMAND = "#8a8f99"


class StockRenderer(Renderer):
    """Draws the chain: stock and backlog of each echelon, its pipeline, and the last demands.

    The factory is on the left and the customers are on the right. Bars below the line are units
    that are owed. Between two echelons, the units on their way are drawn by the periods until they
    arrive. Needs the extra `rendering`.
    """

    def render(self, maze_state: StockMazeState, maze_action: Any = None, events: Any = (), **_: Any) -> Figure:
        """Draw one step; see `Renderer.render`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        require_matplotlib(type(self).__name__)
        from matplotlib.figure import Figure

        state = maze_state
        figure = Figure(figsize=(11, 4.6))  # without a layout engine, which would take as long as the drawing
        axes = figure.add_axes((0.03, 0.13, 0.7, 0.72))
        history = figure.add_axes((0.78, 0.13, 0.2, 0.72))
        _draw_chain(axes, state, None if maze_action is None else maze_action.amounts)
        _draw_history(history, state)
        return figure


def _draw_chain(axes: Axes, state: StockMazeState, amounts: tuple[int, ...] | None) -> None:
    """Draw echelons and what is on its way to them."""
    n_slots = state.transit.shape[1]
    width = n_slots + 2.2
    highest = max(int(state.stock.max()), int(state.transit.max()), 1)
    lowest = max(int(state.owed.max()), 0)
    n = len(state.stock)
    for echelon in range(n):
        right = (n - echelon) * width
        _bar(axes, right, int(state.stock[echelon]), _STOCK, 0.9, highest)
        if state.owed[echelon]:
            _bar(axes, right, -int(state.owed[echelon]), _OWED, 0.9, highest)
        used = max(int(state.chain.lead[echelon]) - 1, 0)
        for slot in range(used):
            _bar(axes, right - 1.1 - slot, int(state.transit[echelon, slot]), _TRANSIT, 0.75, highest)
        name = f"echelon {echelon}" + ("\n(customers)" if echelon == 0 else "")
        axes.text(right, -lowest - 0.12 * highest, name, ha="center", va="top", fontsize=9, color=_INK)
    axes.axhline(0, color=_INK, linewidth=1)
    axes.set(xlim=(width - n_slots - 1.2, n * width + 1.2), ylim=(-lowest - 0.34 * highest, 1.35 * highest))
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    _write_amounts(axes, state, amounts, width, highest)
    title = f"period {state.period} of {state.chain.periods}"
    axes.set_title(title, loc="left", fontsize=10, color=_INK)
    labels = {"in stock": _STOCK, "owed": _OWED, "on its way": _TRANSIT, state.chain.target: _ORDER}
    for place, (label, colour) in enumerate(labels.items()):
        axes.figure.text(0.04 + 0.11 * place, 0.03, f"\u25a0 {label}", color=colour, fontsize=9)


def _bar(axes: Axes, centre: float, units: int, colour: str, width: float, highest: int) -> None:
    """Draw a bar with its number of units."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((centre - width / 2, 0), width, units, facecolor=colour, edgecolor="white"))
    height = units + 0.03 * highest if units >= 0 else units - 0.03 * highest
    axes.text(centre, height, f"{abs(units)}", ha="center", va="bottom" if units >= 0 else "top", fontsize=8)


def _write_amounts(
    axes: Axes, state: StockMazeState, amounts: tuple[int, ...] | None, width: float, highest: int
) -> None:
    """Write the order or level of each echelon that acts above it."""
    if amounts is None:
        return
    first = max(state.echelon, 0)
    word = "to" if state.chain.target == "level" else "+"
    for place, amount in enumerate(amounts):
        right = (len(state.stock) - first - place) * width
        text = axes.text(right, 1.2 * highest, f"{word} {amount}", ha="center", fontsize=10, fontweight="bold")
        text.set_color(_ORDER)


def _draw_history(axes: Axes, state: StockMazeState) -> None:
    """Draw the last demands of customers, the newest on the right."""
    demand = state.received[0][::-1]
    places = range(-len(demand), 0)
    axes.bar(list(places), demand.tolist(), color=_DEMAND, width=0.8)
    mean = state.chain.demand.mean
    axes.axhline(mean, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_title("demand of customers", loc="left", fontsize=10, color=_INK)
    axes.set_xticks(list(places))
    axes.set_ylim(0, max(1.15 * float(max(demand, default=0)), 1.5 * mean))
    axes.tick_params(labelsize=8, colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
