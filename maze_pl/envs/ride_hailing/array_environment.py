"""Ride hailing with one agent for each shift, over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.ride_hailing.array_observation import vehicle_observation
from maze_pl.envs.ride_hailing.environment import ride_hailing_factory
from maze_pl.envs.ride_hailing.fleet_array_environment import FleetArrayEnvironment
from maze_pl.envs.ride_hailing.objects import Array
from maze_pl.envs.ride_hailing.vehicle_reward_aggregator import VehicleRewardAggregator


class RideHailingArrayEnvironment(FleetArrayEnvironment):
    """Ride hailing over arrays, each episode equal to one of `RideHailingEnvironment`.

    Environments are at different vehicles at the same time, and time passes in those whose vehicles
    have all decided.

    Args:
        n_shifts: Number of shifts in a day, one vehicle each.
        shift_hours: Shortest and longest shift, hours.
        patience: Shortest and longest time in which passengers must be picked up, minutes.
        n_nearest: Number of requests that a vehicle may choose from.
        city: Options of `City`.
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
        reward_aggregator: VehicleRewardAggregator | None = None,
    ) -> None:
        super().__init__(ride_hailing_factory(n_shifts, shift_hours, patience, n_nearest, city), reward_aggregator)

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._vehicle = np.zeros(n_envs, np.int64)  # that decides next
        self._env_time = np.zeros(n_envs, np.int64)
        self._n_acts = np.zeros(n_envs, np.int64)  # of this environment step
        self._team_reward = np.zeros(n_envs)
        self._vehicle_rewards = np.zeros((n_envs, self._day.n_shifts))  # of the acts of this environment step

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start days."""
        for array in (self._env_time, self._n_acts, self._team_reward):
            array[which] = 0
        self._start(which, seeds)
        self._find_vehicles(which)
        return self._result()

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Let the next vehicle of each environment decide."""
        numbers = self.numbers_of(which)
        option = actions["vehicle"]["option"][numbers].astype(np.int64)
        drives, rewards = self._decide(numbers, np.zeros(len(numbers), np.int64), option)
        of_vehicle = np.zeros(len(numbers))
        for part in rewards:
            of_vehicle += part
            self._team_reward[numbers] += part
        self._vehicle_rewards[numbers, self._n_acts[numbers]] = of_vehicle
        self._n_acts[numbers] += 1
        done = np.zeros(self.n_envs, np.bool_)
        done[numbers] = self.simulation.is_done(numbers, drives.vehicle)
        ending = numbers[self.simulation.n_undecided[numbers] == 0]
        self._pass_time(ending)
        reward = np.zeros(self.n_envs)
        reward[ending] = self._team_reward[ending]
        terminated = np.zeros(self.n_envs, np.bool_)
        terminated[ending] = self.simulation.is_over(ending)
        self._env_time[ending] += 1
        self._n_acts[ending] = 0
        self._team_reward[ending] = 0
        self._find_vehicles(numbers)
        self._observe(numbers)
        result = self._result()
        result.reward = reward
        result.terminated = terminated
        result.actor_done = done
        result.actor_rewards = self._vehicle_rewards
        return result

    def _result(self) -> ArrayStep:
        """Return the next vehicles and their observations."""
        return ArrayStep({"vehicle": self._observation}, env_time=self._env_time, next_agent=self._vehicle)

    def _find_vehicles(self, which: Array) -> None:
        """Find the vehicles that decide next; after the end of the day, they remain the last ones."""
        running = which[self.simulation.n_undecided[which] > 0]
        self._vehicle[running] = self.simulation.undecided[running, 0]

    def _observations(self, which: Array) -> dict[str, Array]:
        """Compute observations [n, ...]; zeros at the end of the day, when no vehicle decides."""
        is_running = self.simulation.n_undecided[which] > 0
        if is_running.all():
            return vehicle_observation(self.simulation, which)
        computed = vehicle_observation(self.simulation, which[is_running])
        observations = {}
        for name, array in computed.items():
            observations[name] = np.zeros((len(which), *array.shape[1:]), np.float32)
            observations[name][is_running] = array
        return observations
