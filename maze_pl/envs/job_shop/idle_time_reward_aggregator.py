"""Reward for machines that do not wait."""

from typing import Any

from maze_pl.envs.job_shop.schedule_reward_aggregator import ScheduleRewardAggregator


class IdleTimeRewardAggregator(ScheduleRewardAggregator):
    """Penalises the time that machines wait for their next operations.

    Args:
        relative: Whether to divide the times by the lower bound before anything is scheduled.
    """

    def costs(self, idle_time: Any, bound_increase: Any, makespan: Any) -> Any:
        """Return the idle time; see `ScheduleRewardAggregator.costs`."""
        return idle_time
