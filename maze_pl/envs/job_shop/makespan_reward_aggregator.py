"""Reward for a short schedule, given at the end."""

from typing import Any

from maze_pl.envs.job_shop.schedule_reward_aggregator import ScheduleRewardAggregator


class MakespanRewardAggregator(ScheduleRewardAggregator):
    """Penalises the makespan in the last step; all other rewards are 0.

    Args:
        relative: Whether to divide the makespan by the lower bound before anything is scheduled.
    """

    def costs(self, idle_time: Any, bound_increase: Any, makespan: Any) -> Any:
        """Return the makespan; see `ScheduleRewardAggregator.costs`."""
        return makespan
