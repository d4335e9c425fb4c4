"""What is ordered, what happens while cutting, what is computed of it (indicator and rewards), and how it is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.trajectory_record import Renderer
from maze_pl.events import EpisodeEventLog, KpiCalculator, define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.events.display import require_matplotlib
from maze_pl.events.topics import EventT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from maze_pl.envs.cutting_2d.environments import Cutting2DMazeAction, Cutting2DMazeState

Piece = tuple[int, int]
"""Extent in x and in y."""


class DemandGenerator(ABC):
    """Says what is ordered; keeps nothing of its own, so that an episode depends on its seed alone."""

    @abstractmethod
    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Orders that follow one another next, each of them small enough for a raw piece.

        Args:
            raw_piece_size: Size of a raw piece.
            generator: Source of all randomness.
            last: The orders before them, as this method returned them; empty at the start of an episode.
        """


class StaticDemand(DemandGenerator):
    """The same orders again and again.

    Args:
        pieces: The piece that is always ordered, or several that follow one another in a cycle.
    """

    def __init__(self, pieces: Piece | Sequence[Piece]) -> None:
        self.pieces: list[Piece] = [(x, y) for x, y in np.reshape(pieces, (-1, 2)).tolist()]

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """The cycle."""
        return self.pieces


class MixedPeriodicDemand(DemandGenerator):
    """Orders that together fill raw pieces exactly, drawn anew for each episode and repeated in it again and again.

    Raw pieces are cut at random, right across and at whole numbers, until there are enough pieces.

    Args:
        n_raw_pieces: How many raw pieces are cut.
        m_demanded_pieces: How many pieces they become, which is the length of the period.
        rotate: Whether each piece is turned by 90 degrees with probability one half.
    """

    def __init__(self, n_raw_pieces: int, m_demanded_pieces: int, rotate: bool = False) -> None:
        self.n_raw_pieces, self.m_demanded_pieces, self.rotate = n_raw_pieces, m_demanded_pieces, rotate

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """The pieces, shuffled.

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
            if cut:  # 0 leaves the piece whole, and another one is tried
                pieces[index : index + 1] = [(x, cut), (x, y - cut)] if axis else [(cut, y), (x - cut, y)]
        generator.shuffle(pieces)
        return last or [piece[::-1] if self.rotate and generator.random() < 0.5 else piece for piece in pieces]


class UniformDemand(DemandGenerator):
    """Orders with sides drawn uniformly from 1 up to the largest, each order independent of the others.

    Args:
        max_size: Largest extent in x and in y.
    """

    def __init__(self, max_size: Piece) -> None:
        if min(max_size) < 1:
            raise ValueError(f"max_size={max_size} must be at least 1 in both directions")
        self.max_size = max_size

    def period(self, raw_piece_size: Piece, generator: np.random.Generator, last: list[Piece]) -> list[Piece]:
        """Some orders: many at a time are drawn much faster than one by one."""
        return [(x, y) for x, y in generator.integers(1, self.max_size, (128, 2), endpoint=True).tolist()]


Demand = Piece | Sequence[Piece] | DemandGenerator
"""The piece that is always ordered, several that follow one another in a cycle, or what generates orders."""


def fits(order: Piece, piece: Piece) -> bool:
    """Whether an order can be cut out of a piece, turned or not."""
    return min(order) <= min(piece) and max(order) <= max(piece)


def _counted(event: EventT) -> EventT:
    """An event of which it is of interest how often it happens in an episode."""
    event = define_episode_stats(sum)(define_step_stats(len)(event))
    return define_epoch_stats(np.mean, output_name="mean_episode_total")(event)


class CuttingEvents:
    """The cutting process."""

    @_counted
    def invalid_piece_selected(self) -> None:
        """There is no piece in the slot that was chosen."""

    @_counted
    def valid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece, cutting_area: float) -> None:
        """An order was cut out of a piece; `cutting_area` is what the customer gets."""

    @_counted
    def invalid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece) -> None:
        """The order does not fit into the chosen piece the way it was turned."""


class InventoryEvents:
    """The stock."""

    @_counted
    def piece_discarded(self, piece: Piece) -> None:
        """The stock was full, and its oldest piece was thrown away."""

    @_counted
    def piece_replenished(self) -> None:
        """A raw piece came into the stock."""

    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value: int) -> None:
        """Number of pieces in stock at the end of a step."""

    @_counted
    def no_piece_fits(self, current_demand: Piece) -> None:
        """No piece in stock can serve the order, which ends the episode where masks leave nothing else to do."""


class Cutting2dKpiCalculator(KpiCalculator):
    """`raw_piece_usage_per_step`: raw pieces put in stock, the one at the start included, for each step."""

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Performance indicators of an episode."""
        n_raw_pieces = len(episode_event_log.query_events(InventoryEvents.piece_replenished))
        return {"raw_piece_usage_per_step": n_raw_pieces / len(episode_event_log.step_event_logs)}


class DefaultRewardAggregator(RewardAggregatorInterface):
    """Penalties for raw pieces and for what cannot be done.

    Args:
        invalid_action_penalty: Reward for choosing an empty slot, or a cut that does not fit.
        raw_piece_usage_penalty: Reward for each raw piece put in stock, the one at the start included.
    """

    def __init__(self, invalid_action_penalty: float = -2, raw_piece_usage_penalty: float = -1) -> None:
        super().__init__()
        self.invalid_action_penalty, self.raw_piece_usage_penalty = invalid_action_penalty, raw_piece_usage_penalty

    def get_interfaces(self) -> list[type]:
        """Both topics of the environment."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Sum of the penalties of the current step."""
        n_invalid = len(self.query_events((CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut)))
        n_raw_pieces = len(self.query_events(InventoryEvents.piece_replenished))
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty


class RawPieceUsageRewardAggregator(DefaultRewardAggregator):
    """Minus the number of raw pieces put in stock; invalid actions cost nothing.

    Args:
        reward_scale: What the number is multiplied by.
    """

    def __init__(self, reward_scale: float) -> None:
        super().__init__(invalid_action_penalty=0, raw_piece_usage_penalty=-reward_scale)


_ORDER, _CHOSEN, _FITTING, _OTHER, _LINE = "#dd8452", "#8da0cb", "#dbe4f2", "#eeeeee", "#444444"


class Cutting2DRenderer(Renderer):
    """The chosen piece with its cuts on the left, the stock to scale on the right; needs the extra `rendering`."""

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
    """The chosen piece, the order in its corner, and the two cuts with their numbers."""
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
    """All pieces in rows, the oldest at the top left; those that can serve the order stand out."""
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
