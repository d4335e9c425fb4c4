"""Reward for short drives."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array
from maze_pl.envs.vehicle_routing.routing_reward_aggregator import RoutingRewardAggregator


class DistanceRewardAggregator(RoutingRewardAggregator):
    """Penalises the distance of each step, returns to the depot included.

    The rewards of an episode add up to minus the total distance.

    Args:
        relative: Whether rewards are divided by a lower bound of the total distance, so that those
            of all instances are comparable; see `radial_bounds`.
    """

    def rewards(self, distance: Array, total: Array, is_complete: Array) -> Array:
        """Return rewards [n]; see `RoutingRewardAggregator.rewards`."""
        return np.asarray(0.0 - distance)
