"""Events of the cutting problem."""

import numpy as np

from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.events.topics import EventT


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
