"""Reward for passengers."""

from typing import Any

from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class ServedRewardAggregator(VehicleRewardAggregator):
    """1 for each passenger who is picked up, whatever the fare."""

    def request_reward(self, fare: Any, distance: Any, waiting_time: Any) -> Any:
        """Return 1."""
        return 1.0
