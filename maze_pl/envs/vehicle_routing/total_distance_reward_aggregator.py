"""Reward for a short total distance, given at the end."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array
from maze_pl.envs.vehicle_routing.routing_reward_aggregator import RoutingRewardAggregator


class TotalDistanceRewardAggregator(RoutingRewardAggregator):
    """Penalises the total distance in the last step; all other rewards are 0.

    Args:
        relative: Whether rewards are divided by a lower bound of the total distance, so that those
            of all instances are comparable; see `radial_bounds`.
    """

    def rewards(self, distance: Array, total: Array, is_complete: Array) -> Array:
        """Return rewards [n]; see `RoutingRewardAggregator.rewards`."""
        return np.where(is_complete, 0.0 - total, 0.0)
