"""Base of rewards that can be divided among vehicles."""

from typing import Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.objects import Array
from maze_pl.events import EventRecord


class VehicleRewardAggregator(RewardAggregatorInterface):
    """Sums rewards of events, each of which belongs to a vehicle.

    Critics that evaluate each vehicle separately use the rewards of the vehicles. A subclass
    implements the rewards of the events that count; all others are 0. The arguments of these
    methods are the attributes of `RideEvents`: numbers of one event, or arrays [n] of n events, so
    that they serve single episodes and arrays.
    """

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [RideEvents]

    def use_city(self, city: City) -> None:
        """Take prices from the city; called before the first rewards. Does nothing by default."""

    def request_reward(self, fare: Any, distance: Any, waiting_time: Any) -> Any:
        """Return the reward of `request_accepted`."""
        return 0.0

    def empty_reward(self, distance: Any) -> Any:
        """Return the reward of `driven_empty`."""
        return 0.0

    def overtime_reward(self, minutes: Any) -> Any:
        """Return the reward of `overtime`."""
        return 0.0

    def invalid_reward(self, option: Any) -> Any:
        """Return the reward of `invalid_choice`."""
        return 0.0

    def reward_of(self, record: EventRecord) -> float:
        """Return the reward of an event of `RideEvents` that has a vehicle.

        A subclass that replaces this method has no array form.
        """
        values = record.attributes
        if record.event is RideEvents.driven_empty:
            return float(self.empty_reward(values["distance"]))
        if record.event is RideEvents.request_accepted:
            return float(self.request_reward(values["fare"], values["distance"], values["waiting_time"]))
        if record.event is RideEvents.overtime:
            return float(self.overtime_reward(values["minutes"]))
        return float(self.invalid_reward(values["option"]))

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the reward of the current step."""
        if maze_state is not None:
            self.use_city(maze_state.city)
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
