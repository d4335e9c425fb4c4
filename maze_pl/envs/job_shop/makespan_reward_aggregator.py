"""Reward for a short schedule, given at the end."""

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.events import ScheduleEvents


class MakespanRewardAggregator(RewardAggregatorInterface):
    """Penalises the makespan in the last step; all other rewards are 0.

    Args:
        relative: Whether to divide the makespan by the lower bound before anything is scheduled.
    """

    def __init__(self, relative: bool = False) -> None:
        super().__init__()
        self.relative = relative

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [ScheduleEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        makespan = 0
        for event in self.query_events(ScheduleEvents.schedule_completed):
            makespan += event.attributes["makespan"]
        scale = max(maze_state.instance.start_bound, 1) if self.relative else 1
        return 0.0 - makespan / scale
