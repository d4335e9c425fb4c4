"""Reward for income."""

import math

from maze_pl.envs.ride_hailing.events import RideEvents
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator
from maze_pl.events import EventRecord


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

    def reward_of(self, record: EventRecord) -> float:
        """Return the income of an event."""
        values = record.attributes
        if record.event is RideEvents.request_accepted:
            return float(values["fare"] - self.cost_per_km * values["distance"])
        if record.event is RideEvents.driven_empty:
            return float(-self.cost_per_km * values["distance"])
        if record.event is RideEvents.overtime:
            return float(-self.overtime_cost * values["minutes"])
        return 0.0
