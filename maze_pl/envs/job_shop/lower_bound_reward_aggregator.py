"""Reward for keeping the lower bound of the makespan low."""

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.events import ScheduleEvents


class LowerBoundRewardAggregator(RewardAggregatorInterface):
    """Penalises each increase of the lower bound of the makespan: r_t = (b_{t-1} - b_t) / scale.

    The rewards of an episode add up to (b_0 - makespan) / scale, since the bound of a complete
    schedule is its makespan. Zhang et al. 2020, arXiv:2010.12367, eq. 1. Departure: the bound also
    includes the work that is left for each machine, so that more of the reward comes early.

    Args:
        relative: Whether scale is b_0, the bound before anything is scheduled, so that rewards of
            instances of all sizes are comparable; 1 otherwise.
    """

    def __init__(self, relative: bool = False) -> None:
        super().__init__()
        self.relative = relative

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [ScheduleEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        increase = 0
        for event in self.query_events(ScheduleEvents.operation_scheduled):
            increase += event.attributes["bound_increase"]
        scale = max(maze_state.instance.start_bound, 1) if self.relative else 1
        return 0.0 - increase / scale
