"""The events of the cutting tutorial, declared as it declares them, with every number worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from maze_pl.events import (
    EnvironmentContext,
    EpochStatistics,
    Histogram,
    Pubsub,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
    histogram,
)
from maze_pl.events.episode_statistics import EpisodeStatistics


class CuttingEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def invalid_piece_selected(self) -> None:
        """An invalid piece was selected for cutting."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_epoch_stats(max, input_name="most_in_a_step", output_name="most_in_a_step")
    @define_episode_stats(sum)
    @define_episode_stats(max, output_name="most_in_a_step")
    @define_step_stats(len)
    def valid_cut(self, current_demand: tuple[int, int], piece_to_cut: tuple[int, int], cutting_area: float) -> None:
        """A valid cut was made."""

    @define_epoch_stats(np.mean, input_name="area", output_name="mean_area")
    @define_epoch_stats(np.mean, input_name="cuts", output_name="mean_cuts")
    @define_episode_stats(sum, input_name="areas", output_name="area")
    @define_episode_stats(sum, input_name="number", output_name="cuts")
    @define_step_stats(sum, input_name="cutting_area", output_name="areas")
    @define_step_stats(len, output_name="number")
    @define_stats_grouping("tool")
    def cut_with(self, tool: str, cutting_area: float) -> None:
        """A tool was used."""


class InventoryEvents:
    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value: int) -> None:
        """How many pieces there are."""

    @define_epoch_stats(histogram)
    @define_episode_stats(histogram)
    @define_step_stats(None)
    def piece_sold(self, value: int) -> None:
        """A piece was sold."""


def test_all_levels_of_the_documented_events() -> None:
    pubsub = Pubsub(EnvironmentContext())
    cutting, inventory = pubsub.create_event_topic(CuttingEvents), pubsub.create_event_topic(InventoryEvents)
    statistics, epoch = EpisodeStatistics(), EpochStatistics()
    statistics.declare(CuttingEvents, InventoryEvents)

    def end_step() -> None:
        for record in pubsub.drain():
            statistics.receive(record)
        statistics.end_step()

    # first episode: steps with 2 valid cuts and 10 pieces, with an invalid one and 4 pieces, with 1 valid cut and 1
    for n_valid, n_invalid, n_pieces in ((2, 0, 10), (0, 1, 4), (1, 0, 1)):
        for _ in range(n_valid):
            cutting.valid_cut(current_demand=(1, 2), piece_to_cut=(4, 3), cutting_area=2.0)
            cutting.cut_with("saw", cutting_area=2.0)
        for _ in range(n_invalid):
            cutting.invalid_piece_selected()
            cutting.cut_with("laser", 0.5)
        inventory.pieces_in_inventory(n_pieces)
        inventory.piece_sold(n_pieces % 3)
        end_step()
    epoch.add(statistics.end_episode())
    # second episode: one step in which nothing is cut
    inventory.pieces_in_inventory(value=7)
    end_step()
    epoch.add(statistics.end_episode())

    values = epoch.compute()
    expected = {
        "CuttingEvents/invalid_piece_selected/mean_episode_total": 0.5,  # of 1 and 0
        "CuttingEvents/valid_cut/mean_episode_total": 1.5,  # of 3 and 0
        "CuttingEvents/valid_cut/most_in_a_step": 2.0,
        "CuttingEvents/cut_with/mean_area/saw": 3.0,  # of 6 and 0
        "CuttingEvents/cut_with/mean_area/laser": 0.25,
        "CuttingEvents/cut_with/mean_cuts/saw": 1.5,
        "CuttingEvents/cut_with/mean_cuts/laser": 0.5,
        "InventoryEvents/pieces_in_inventory/step_mean": 6.0,  # of 5 and 7
        "InventoryEvents/pieces_in_inventory/step_max": 10.0,
        "InventoryEvents/piece_sold": Histogram.of([1, 1, 1]),
    }
    assert {name: value for name, value in values.items() if not name.startswith("BaseEnvEvents")} == {
        name: value if isinstance(value, Histogram) else pytest.approx(value) for name, value in expected.items()
    }
