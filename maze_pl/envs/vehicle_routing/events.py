"""Events of vehicle routing."""

import numpy as np

from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats


class RoutingEvents:
    """Events of vehicles that serve customers."""

    @define_epoch_stats(np.mean, input_name="distance", output_name="mean_distance")
    @define_episode_stats(sum, input_name="distance", output_name="distance")
    @define_step_stats(sum, input_name="distance", output_name="distance")
    def customer_served(self, vehicle: int, customer: int, demand: int, distance: float) -> None:
        """A vehicle has driven to a customer and delivered its demand."""

    @define_epoch_stats(np.mean, input_name="load", output_name="mean_load")
    @define_episode_stats(np.mean, input_name="load", output_name="load")
    @define_step_stats(np.mean, input_name="load", output_name="load")
    def vehicle_returned(self, vehicle: int, distance: float, load: float) -> None:
        """A vehicle has driven to the depot; `load` is the share of its capacity that it has delivered."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def invalid_choice(self, vehicle: int, node: int) -> None:
        """The chosen move is not allowed; the nearest customer was served instead."""

    @define_epoch_stats(np.mean, input_name="distance", output_name="mean_distance")
    @define_episode_stats(sum, input_name="distance", output_name="distance")
    @define_step_stats(sum, input_name="distance", output_name="distance")
    def routes_completed(self, distance: float, n_routes: int) -> None:
        """All customers are served, and all vehicles are at the depot."""
