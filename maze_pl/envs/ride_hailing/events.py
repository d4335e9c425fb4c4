"""Events of ride hailing."""

import numpy as np

from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats


class RideEvents:
    """Events of a fleet and its passengers."""

    @define_epoch_stats(np.mean, input_name="fare", output_name="mean_fares")
    @define_episode_stats(sum, input_name="fare", output_name="fare")
    @define_step_stats(sum, input_name="fare", output_name="fare")
    @define_epoch_stats(np.mean, input_name="count", output_name="mean_count")
    @define_episode_stats(sum, input_name="count", output_name="count")
    @define_step_stats(len, output_name="count")
    def request_accepted(self, vehicle: int, fare: float, distance: float, waiting_time: float) -> None:
        """A vehicle drives to a passenger; `waiting_time` is the time until the pick-up, in minutes."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="count")
    def requests_lost(self, count: int) -> None:
        """Passengers have left, not having been picked up in time."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="distance")
    def driven_empty(self, vehicle: int, distance: float) -> None:
        """A vehicle drives without a passenger, to the pick-up or to another zone, km."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="minutes")
    def overtime(self, vehicle: int, minutes: float) -> None:
        """A drive will end after the end of the vehicle's shift."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def invalid_choice(self, vehicle: int, option: int) -> None:
        """The chosen option does not exist; the vehicle stays instead."""
