"""Orders, events, performance indicators, rewards and rendering of the cutting problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.trajectory_record import Renderer
from maze_pl.events import (
    RunningKpiCalculator,
    StepEventLog,
    define_episode_stats,
    define_epoch_stats,
    define_step_stats,
)
from maze_pl.events.display import require_matplotlib
from maze_pl.events.topics import EventT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from maze_pl.envs.cutting_2d.environments import Cutting2DMazeAction, Cutting2DMazeState

Piece = tuple[int, int]
"""Extent in x and in y."""


class DemandGenerator(ABC):
    """Generates orders; holds no state, so that an episode depends on its seed alone."""

    @abstractmethod
    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the next orders, each small enough to be cut out of a raw piece.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            last: The result of the previous call; empty at the start of an episode.
        """


class StaticDemand(DemandGenerator):
    """Repeats the same orders.

    Args:
        pieces: The piece that is always ordered, or several pieces that are ordered in a cycle.
    """

    def __init__(self, pieces: Piece | Sequence[Piece]) -> None:
        self.pieces: list[Piece] = [(x, y) for x, y in np.reshape(pieces, (-1, 2)).tolist()]

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the cycle."""
        return self.pieces


class MixedPeriodicDemand(DemandGenerator):
    """Repeats orders that together fill raw pieces exactly, drawn once for each episode.

    Raw pieces are cut at random, straight across and at integer positions, until there are enough
    pieces.

    Args:
        n_raw_pieces: Number of raw pieces to cut.
        m_demanded_pieces: Number of pieces to cut them into, which is the length of the period.
        rotate: Whether to rotate each piece by 90 degrees with probability one half.
    """

    def __init__(self, n_raw_pieces: int, m_demanded_pieces: int, rotate: bool = False) -> None:
        self.n_raw_pieces, self.m_demanded_pieces, self.rotate = n_raw_pieces, m_demanded_pieces, rotate

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return the pieces, shuffled.

        Raises:
            ValueError: The raw pieces cannot be cut into that many pieces.
        """
        most = self.n_raw_pieces * raw_piece_size[0] * raw_piece_size[1]
        if not 1 <= self.n_raw_pieces <= self.m_demanded_pieces <= most:
            wrong = f"n_raw_pieces={self.n_raw_pieces} of size {raw_piece_size} cannot be cut into "
            raise ValueError(f"{wrong}m_demanded_pieces={self.m_demanded_pieces}; give at least 1 for at most {most}")
        pieces = [raw_piece_size] * self.n_raw_pieces
        while not last and len(pieces) < self.m_demanded_pieces:
            index, axis = int(generator.integers(len(pieces))), int(generator.integers(2))
            x, y = pieces[index]
            cut = int(generator.integers(pieces[index][axis]))
            if cut:  # 0 would leave the piece whole; try again
                pieces[index : index + 1] = [(x, cut), (x, y - cut)] if axis else [(cut, y), (x - cut, y)]
        generator.shuffle(pieces)
        return last or [piece[::-1] if self.rotate and generator.random() < 0.5 else piece for piece in pieces]


class UniformDemand(DemandGenerator):
    """Draws independent orders with integer sides uniform from 1 to `max_size`.

    Args:
        max_size: Largest extent in x and in y.
    """

    def __init__(self, max_size: Piece) -> None:
        if min(max_size) < 1:
            raise ValueError(f"max_size={max_size} must be at least 1 in both directions")
        self.max_size = max_size

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Return 128 orders, as drawing many at once is much faster than one at a time."""
        return [(x, y) for x, y in generator.integers(1, self.max_size, (128, 2), endpoint=True).tolist()]


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several pieces that are ordered in a cycle, or a generator."""


def fits(order: Piece, piece: Piece) -> bool:
    """True if an order can be cut out of a piece, rotated or not."""
    return min(order) <= min(piece) and max(order) <= max(piece)


def _counted(event: EventT) -> EventT:
    """Add statistics that count how often an event happens in an episode."""
    event = define_episode_stats(sum)(define_step_stats(len)(event))
    return define_epoch_stats(np.mean, output_name="mean_episode_total")(event)


class CuttingEvents:
    """Events of the cutting process."""

    @_counted
    def invalid_piece_selected(self) -> None:
        """The chosen slot is empty."""

    @_counted
    def valid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece, cutting_area: float) -> None:
        """An order was cut out of a piece; `cutting_area` is the area of the order."""

    @_counted
    def invalid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece) -> None:
        """The order does not fit into the chosen piece in the chosen rotation."""


class InventoryEvents:
    """Events of the stock."""

    @_counted
    def piece_discarded(self, piece: Piece) -> None:
        """The stock was full, and its oldest piece was discarded."""

    @_counted
    def piece_replenished(self) -> None:
        """A raw piece was put in stock."""

    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value: int) -> None:
        """Number of pieces in stock at the end of a step."""

    @_counted
    def no_piece_fits(self, current_demand: Piece) -> None:
        """The order fits into no piece in stock; ends the episode where masks allow no action."""


class Cutting2dKpiCalculator(RunningKpiCalculator):
    """Raw pieces put in stock, including the initial one, per step and per order served.

    `raw_piece_usage_per_step` is also low for an agent that serves few orders. In
    `raw_pieces_per_order_served`, an unserved order counts as one raw piece, because serving it
    would have taken at most one.
    """

    kpi_names = ("raw_piece_usage_per_step", "raw_pieces_per_order_served")

    def new_totals(self) -> dict[str, Any]:
        """Counts of an episode without steps."""
        return {"raw_pieces": 0, "orders": 0, "served": 0}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Count the events of a step, which is one order."""
        totals["raw_pieces"] += len(step.query_events(InventoryEvents.piece_replenished))
        totals["orders"] += 1
        totals["served"] += len(step.query_events(CuttingEvents.valid_cut))

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Compute the performance indicators of an episode."""
        n_raw_pieces, n_orders = totals["raw_pieces"], totals["orders"]
        n_served = totals["served"]
        n_unserved = n_orders - n_served
        return {
            "raw_piece_usage_per_step": n_raw_pieces / n_orders,
            "raw_pieces_per_order_served": (n_raw_pieces + n_unserved) / max(n_served, 1),
        }


class DefaultRewardAggregator(RewardAggregatorInterface):
    """Penalises the use of raw pieces and invalid actions.

    Args:
        invalid_action_penalty: Reward for choosing an empty slot or a cut that does not fit.
        raw_piece_usage_penalty: Reward for each raw piece put in stock, including the initial one.
    """

    def __init__(self, invalid_action_penalty: float = -2, raw_piece_usage_penalty: float = -1) -> None:
        super().__init__()
        self.invalid_action_penalty, self.raw_piece_usage_penalty = invalid_action_penalty, raw_piece_usage_penalty

    def get_interfaces(self) -> list[type]:
        """Event topics to receive: both topics of the environment."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Sum the penalties of the current step."""
        n_invalid = len(self.query_events((CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut)))
        n_raw_pieces = len(self.query_events(InventoryEvents.piece_replenished))
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty


class RawPieceUsageRewardAggregator(DefaultRewardAggregator):
    """Penalises each raw piece put in stock; invalid actions cost nothing.

    Args:
        reward_scale: Factor for the number of raw pieces.
    """

    def __init__(self, reward_scale: float) -> None:
        super().__init__(invalid_action_penalty=0, raw_piece_usage_penalty=-reward_scale)


_ORDER, _CHOSEN, _FITTING, _OTHER, _LINE = "#dd8452", "#8da0cb", "#dbe4f2", "#eeeeee", "#444444"


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

        figure = Figure(figsize=(10, 4.5), layout="constrained")
        left, right = figure.subplots(1, 2, subplot_kw={"frame_on": False, "xticks": (), "yticks": ()})
        _draw_cuts(left, maze_state, maze_action)
        _draw_stock(right, maze_state, -1 if maze_action is None else maze_action.piece_id)
        for axes in (left, right):
            axes.set(aspect="equal", anchor="N")
            axes.autoscale_view()
        return figure


def _draw_cuts(axes: Axes, maze_state: Cutting2DMazeState, maze_action: Cutting2DMazeAction | None) -> None:
    """Draw the chosen piece, the order in its corner, and the two numbered cuts."""
    (width, height), index = maze_state.current_demand, -1 if maze_action is None else maze_action.piece_id
    title = f"order {width} x {height}: "
    _rectangle(axes, 0, 0, *maze_state.raw_piece_size, "none", linestyle=":")
    if maze_action is None or not 0 <= index < len(maze_state.inventory):
        _rectangle(axes, 0, 0, width, height, _ORDER)
        axes.set_title(f"{title}{'nothing' if maze_action is None else 'an empty slot'} chosen", loc="left")
        return
    (x, y), reverse = maze_state.inventory[index], maze_action.reverse_cutting_order
    if maze_action.rotate:
        width, height, title = height, width, f"{title}turned, "
    fitting = width <= x and height <= y
    axes.set_title(f"{title}from piece {index}, {x} x {y}{'' if fitting else ', but does not fit'}", loc="left")
    _rectangle(axes, 0, 0, x, y, _CHOSEN)
    _rectangle(axes, 0, 0, width, height, _ORDER)
    cuts = [((width, width), (0, height if reverse else y)), ((0, x if reverse else width), (height, height))]
    for number, (xs, ys) in enumerate((cuts[::-1] if reverse else cuts) if fitting else (), start=1):
        axes.plot(xs, ys, "--", color=_LINE, linewidth=2)
        axes.annotate(f"cut {number}", (xs[1], ys[1]), (4, 4), textcoords="offset points")


def _draw_stock(axes: Axes, maze_state: Cutting2DMazeState, chosen: int) -> None:
    """Draw all pieces in rows, the oldest at the top left; highlight those that the order fits."""
    pieces, gap = maze_state.inventory, 0.1 * max(maze_state.raw_piece_size)
    row_width = max((1.6 * sum((x + gap) * (y + gap) for x, y in pieces)) ** 0.5, maze_state.raw_piece_size[0])
    left = top = row_height = 0.0
    for index, (x, y) in enumerate(pieces):
        if left + x > row_width:
            left, top, row_height = 0.0, top - row_height - gap, 0.0
        colour = _CHOSEN if index == chosen else _FITTING if fits(maze_state.current_demand, (x, y)) else _OTHER
        _rectangle(axes, left, top - y, x, y, colour)
        if min(x, y) > 0.04 * row_width:
            axes.text(left + x / 2, top - y / 2, str(index), ha="center", va="center", fontsize=8)
        left, row_height = left + x + gap, max(row_height, y)
    for label, colour in (("chosen", _CHOSEN), ("order fits", _FITTING), ("order does not fit", _OTHER)):
        axes.plot([], [], "s", color=colour, markeredgecolor=_LINE, markersize=9, label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=3, frameon=False, borderpad=0)
    axes.set_title(f"{len(pieces)} of at most {maze_state.max_pieces_in_inventory} pieces in stock", loc="left")


def _rectangle(axes: Axes, left: float, bottom: float, x: float, y: float, colour: str, linestyle: str = "-") -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((left, bottom), x, y, facecolor=colour, edgecolor=_LINE, linestyle=linestyle))
