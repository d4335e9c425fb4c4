"""Events of the job shop."""

import numpy as np

from maze_pl.events import define_episode_stats, define_epoch_stats, define_step_stats


class ScheduleEvents:
    """Events of a schedule that is being built."""

    @define_epoch_stats(np.mean, input_name="idle_time", output_name="mean_idle_time")
    @define_episode_stats(sum, input_name="idle_time", output_name="idle_time")
    @define_step_stats(sum, input_name="idle_time", output_name="idle_time")
    def operation_scheduled(
        self, job: int, operation: int, machine: int, start: int, duration: int, idle_time: int, bound_increase: int
    ) -> None:
        """An operation was scheduled.

        `idle_time` is the time that its machine waits for it; `bound_increase` is the increase of
        the lower bound of the makespan.
        """

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def invalid_choice(self, job: int, alternative: int) -> None:
        """The chosen option is not allowed; the allowed one that completes first was scheduled instead."""

    @define_epoch_stats(np.mean, input_name="makespan", output_name="mean_makespan")
    @define_episode_stats(sum, input_name="makespan", output_name="makespan")
    @define_step_stats(sum, input_name="makespan", output_name="makespan")
    def schedule_completed(self, makespan: int) -> None:
        """All operations are scheduled."""
