"""Base of rewards that can be divided among vehicles."""

from abc import abstractmethod
from typing import Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.objects import Array
from maze_pl.events import EventRecord


class VehicleRewardAggregator(RewardAggregatorInterface):
    """Sums rewards of events, each of which belongs to a vehicle.

    Critics that evaluate each vehicle separately use the rewards of the vehicles.
    """

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [RideEvents]

    @abstractmethod
    def reward_of(self, record: EventRecord) -> float:
        """Return the reward of an event of `RideEvents` that has a vehicle."""

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        total = 0.0
        for record in self.events:
            if "vehicle" in record.attributes:
                total += self.reward_of(record)
        return total

    def rewards_of(self, vehicles: list[int]) -> Array:
        """Return the rewards of the current step for vehicles [n], in the same order.

        Args:
            vehicles: Vehicles that have decided in this step.
        """
        totals = dict.fromkeys(vehicles, 0.0)
        for record in self.events:
            if "vehicle" in record.attributes:
                totals[record.attributes["vehicle"]] += self.reward_of(record)
        return np.array(list(totals.values()))
