"""Base of rewards of vehicle routing, which one environment and many in arrays share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.vehicle_routing.events import RoutingEvents
from maze_pl.envs.vehicle_routing.instance import Array


class RoutingRewardAggregator(RewardAggregatorInterface):
    """Computes rewards of n episodes from distances.

    Args:
        relative: Whether rewards are divided by a lower bound of the total distance, so that those
            of all instances are comparable; see `radial_bounds`.
    """

    def __init__(self, relative: bool = False) -> None:
        super().__init__()
        self.relative = relative

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [RoutingEvents]

    @abstractmethod
    def rewards(self, distance: Array, total: Array, is_complete: Array) -> Array:
        """Return rewards [n], before they are divided.

        Args:
            distance: [n] distance that vehicles have driven in this step.
            total: [n] distance since the episode started.
            is_complete: [n] whether the episode is complete.
        """

    def scaled_rewards(self, distance: Array, total: Array, is_complete: Array, bound: Array) -> Array:
        """Return rewards [n].

        Args:
            distance: [n] distance that vehicles have driven in this step.
            total: [n] distance since the episode started.
            is_complete: [n] whether the episode is complete.
            bound: [n] lower bound of the total distance.
        """
        rewards = self.rewards(distance, total, is_complete)
        return np.asarray(rewards / bound) if self.relative else rewards

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        distance = 0.0
        for event in self.query_events(RoutingEvents.customer_served):
            distance += event.attributes["distance"]
        for event in self.query_events(RoutingEvents.vehicle_returned):
            distance += event.attributes["distance"]
        total = maze_state.length
        is_complete = maze_state.is_complete
        bound = maze_state.instance.bound
        arrays = np.array([distance]), np.array([total]), np.array([is_complete]), np.array([bound])
        return float(self.scaled_rewards(*arrays)[0])
