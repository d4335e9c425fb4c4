"""Reward for keeping the lower bound of the makespan low."""

from typing import Any

from maze_pl.envs.job_shop.schedule_reward_aggregator import ScheduleRewardAggregator


class LowerBoundRewardAggregator(ScheduleRewardAggregator):
    """Penalises each increase of the lower bound of the makespan: r_t = (b_{t-1} - b_t) / scale.

    The rewards of an episode add up to (b_0 - makespan) / scale, since the bound of a complete
    schedule is its makespan. Zhang et al. 2020, arXiv:2010.12367, eq. 1. Departure: the bound also
    includes the work that is left for each machine, so that more of the reward comes early.

    Args:
        relative: Whether scale is b_0, the bound before anything is scheduled, so that rewards of
            instances of all sizes are comparable; 1 otherwise.
    """

    def costs(self, idle_time: Any, bound_increase: Any, makespan: Any) -> Any:
        """Return the increase of the bound; see `ScheduleRewardAggregator.costs`."""
        return bound_increase
