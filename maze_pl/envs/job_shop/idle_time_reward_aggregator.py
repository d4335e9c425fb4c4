"""Reward for machines that do not wait."""

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.events import ScheduleEvents


class IdleTimeRewardAggregator(RewardAggregatorInterface):
    """Penalises the time that machines wait for their next operations.

    Args:
        relative: Whether to divide the times by the lower bound before anything is scheduled.
    """

    def __init__(self, relative: bool = False) -> None:
        super().__init__()
        self.relative = relative

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [ScheduleEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        idle_time = 0
        for event in self.query_events(ScheduleEvents.operation_scheduled):
            idle_time += event.attributes["idle_time"]
        scale = max(maze_state.instance.start_bound, 1) if self.relative else 1
        return 0.0 - idle_time / scale
