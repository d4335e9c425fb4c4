"""Reward for income."""

import math
from typing import Any

from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class IncomeRewardAggregator(VehicleRewardAggregator):
    """Fares minus the costs of driving and of overtime, at the time of the decision.

    Args:
        cost_per_km: Cost of driving, with and without a passenger.
        overtime_cost: Cost of a minute of overtime.

    Raises:
        ValueError: A cost is not a number of at least 0.
    """

    def __init__(self, cost_per_km: float = 0.3, overtime_cost: float = 0.5) -> None:
        super().__init__()
        for name, cost in {"cost_per_km": cost_per_km, "overtime_cost": overtime_cost}.items():
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"{name}={cost} must be a number of at least 0")
        self.cost_per_km = cost_per_km
        self.overtime_cost = overtime_cost

    def request_reward(self, fare: Any, distance: Any, waiting_time: Any) -> Any:
        """Return the fare minus the cost of the trip."""
        return fare - self.cost_per_km * distance

    def empty_reward(self, distance: Any) -> Any:
        """Return minus the cost of the drive."""
        return -self.cost_per_km * distance

    def overtime_reward(self, minutes: Any) -> Any:
        """Return minus the cost of the minutes."""
        return -self.overtime_cost * minutes
