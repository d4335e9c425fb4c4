"""Reward for income."""

import math
from typing import Any

from maze_pl.envs.ride_hailing.city import City
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class IncomeRewardAggregator(VehicleRewardAggregator):
    """Fares minus the costs of driving and of overtime, at the time of the decision.

    Args:
        cost_per_km: Cost of driving, with and without a passenger; that of the city if None.
        overtime_cost: Cost of a minute of overtime.

    Raises:
        ValueError: A cost is not a number of at least 0.
    """

    def __init__(self, cost_per_km: float | None = None, overtime_cost: float = 0.5) -> None:
        super().__init__()
        for name, cost in {"cost_per_km": cost_per_km, "overtime_cost": overtime_cost}.items():
            if cost is not None and not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"{name}={cost} must be a number of at least 0")
        self.cost_per_km = cost_per_km
        self.overtime_cost = overtime_cost
        self._cost = 0.3 if cost_per_km is None else cost_per_km  # that of `City()`, until the city is known

    def use_city(self, city: City) -> None:
        """Take the cost of driving from a city, unless it was given."""
        if self.cost_per_km is None:
            self._cost = city.cost_per_km

    def request_reward(self, fare: Any, distance: Any, waiting_time: Any) -> Any:
        """Return the fare minus the cost of the trip."""
        return fare - self._cost * distance

    def empty_reward(self, distance: Any) -> Any:
        """Return minus the cost of the drive."""
        return -self._cost * distance

    def overtime_reward(self, minutes: Any) -> Any:
        """Return minus the cost of the minutes."""
        return -self.overtime_cost * minutes
