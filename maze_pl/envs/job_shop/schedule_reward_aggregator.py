"""Base of rewards of the job shop, which one environment and many in arrays share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.events import ScheduleEvents


class ScheduleRewardAggregator(RewardAggregatorInterface):
    """Penalises costs of each step.

    A subclass implements `costs`, which serves single episodes and arrays.

    Args:
        relative: Whether to divide costs by the lower bound of the makespan before anything is
            scheduled, so that rewards of instances of all sizes are comparable.
    """

    def __init__(self, relative: bool = False) -> None:
        super().__init__()
        self.relative = relative

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [ScheduleEvents]

    @abstractmethod
    def costs(self, idle_time: Any, bound_increase: Any, makespan: Any) -> Any:
        """Return the costs of a step, before they are divided.

        All arguments are numbers of one episode, or arrays [n] of the numbers of n episodes.

        Args:
            idle_time: Time that the machine waited for the operation.
            bound_increase: Increase of the lower bound of the makespan.
            makespan: Makespan in the last step, 0 before.
        """

    def rewards(self, idle_time: Any, bound_increase: Any, makespan: Any, start_bound: Any) -> Any:
        """Return the rewards [n] of a step in each of n episodes.

        Args:
            idle_time: [n] time that the machine waited for the operation.
            bound_increase: [n] increase of the lower bound of the makespan.
            makespan: [n] makespan in the last step, 0 before.
            start_bound: [n] lower bound of the makespan before anything is scheduled.
        """
        scale = np.maximum(start_bound, 1) if self.relative else 1
        return 0.0 - self.costs(idle_time, bound_increase, makespan) / scale

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        idle_time = 0
        bound_increase = 0
        makespan = 0
        for event in self.query_events(ScheduleEvents.operation_scheduled):
            idle_time += event.attributes["idle_time"]
            bound_increase += event.attributes["bound_increase"]
        for event in self.query_events(ScheduleEvents.schedule_completed):
            makespan += event.attributes["makespan"]
        scale = max(maze_state.instance.start_bound, 1) if self.relative else 1
        costs: float = self.costs(idle_time, bound_increase, makespan)
        return 0.0 - costs / scale
