"""Reward for passengers."""

from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator
from maze_pl.events import EventRecord


class ServedRewardAggregator(VehicleRewardAggregator):
    """1 for each passenger who is picked up, whatever the fare."""

    def reward_of(self, record: EventRecord) -> float:
        """Return 1 for an accepted request, otherwise 0."""
        return 1.0 if record.event is RideEvents.request_accepted else 0.0
