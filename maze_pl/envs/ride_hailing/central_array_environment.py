"""Ride hailing with a central dispatcher, over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.ride_hailing.array_observation import dispatcher_observation
from maze_pl.envs.ride_hailing.central_environment import central_dispatch_factory
from maze_pl.envs.ride_hailing.fleet_array_environment import FleetArrayEnvironment
from maze_pl.envs.ride_hailing.objects import N_MOVES, Array
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class CentralDispatchArrayEnvironment(FleetArrayEnvironment):
    """Central dispatchers over arrays, each episode equal to one of `CentralDispatchEnvironment`.

    Args:
        n_shifts: Number of shifts in a day, one vehicle each.
        shift_hours: Shortest and longest shift, hours.
        patience: Shortest and longest time in which passengers must be picked up, minutes.
        n_nearest: Number of requests that a vehicle may choose from.
        city: Options of `City`.
        max_vehicles: Maximum number of vehicles that are observed at a time.
        reward_aggregator: Computes rewards; `IncomeRewardAggregator()` if None.

    Raises:
        ValueError: A number is out of range.
        TypeError: The aggregator has no array form.
    """

    def __init__(
        self,
        n_shifts: int = 16,
        shift_hours: tuple[float, float] = (4.0, 8.0),
        patience: tuple[float, float] = (10.0, 20.0),
        n_nearest: int = 6,
        city: dict[str, Any] | None = None,
        max_vehicles: int = 8,
        reward_aggregator: VehicleRewardAggregator | None = None,
    ) -> None:
        single = central_dispatch_factory(n_shifts, shift_hours, patience, n_nearest, city, max_vehicles)
        super().__init__(single, reward_aggregator)
        self.max_vehicles = max_vehicles

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start days."""
        self._start(which, seeds)
        return ArrayStep({0: self._observation})

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Let a vehicle of each environment do something; time passes where all vehicles have decided."""
        numbers = self.numbers_of(which)
        pair = actions[0]["pair"][numbers].astype(np.int64)
        place, option = np.divmod(pair, self._day.n_nearest + N_MOVES)
        _, rewards = self._decide(numbers, place, option)
        reward = np.zeros(self.n_envs)
        for part in rewards:
            reward[numbers] += part
        self._pass_time(numbers)
        terminated = np.zeros(self.n_envs, np.bool_)
        terminated[numbers] = self.simulation.is_over(numbers)
        self._observe(numbers)
        return ArrayStep({0: self._observation}, reward, terminated)

    def _observations(self, which: Array) -> dict[str, Array]:
        """Compute observations [n, ...]."""
        return dispatcher_observation(self.simulation, which, self.max_vehicles)
