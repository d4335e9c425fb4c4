"""Structured vehicle routing over arrays: one actor chooses the vehicle, a second one where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vehicle_routing.array_environment import VehicleRoutingArrayEnvironment
from maze_pl.envs.vehicle_routing.core_environment import Instances
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.routing_reward_aggregator import RoutingRewardAggregator
from maze_pl.envs.vehicle_routing.structured_environment import structured_vehicle_routing_factory
from maze_pl.envs.vehicle_routing.sub_step_observations import (
    nodes_observation,
    vehicles_observation,
)


class StructuredVehicleRoutingArrayEnvironment(VehicleRoutingArrayEnvironment):
    """Structured vehicle routing over arrays.

    Each episode is equal to one of `StructuredVehicleRoutingEnvironment`.

    Args:
        instances: Random ones (`random(50)`) or files; one is drawn for each episode, with equal
            probabilities.
        max_customers: Maximum number of customers; the largest number of `instances` if None.
        n_vehicles: Maximum number of vehicles under way at the same time.
        reward_aggregator: Computes rewards; `DistanceRewardAggregator()` if None.
        advised: Whether observations show planned routes; see `ObservationConversion`.
    """

    def __init__(
        self,
        instances: Instances,
        max_customers: int | None = None,
        n_vehicles: int = 3,
        reward_aggregator: RoutingRewardAggregator | None = None,
        advised: bool = False,
    ) -> None:
        super().__init__(instances, max_customers, n_vehicles, reward_aggregator, advised)
        self._single = structured_vehicle_routing_factory(instances, max_customers, n_vehicles, advised=advised)

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self._next_key = np.zeros(n_envs, np.int64)
        self._vehicle = np.zeros(n_envs, np.int64)  # chosen in sub-step 0
        self._env_time = np.zeros(n_envs, np.int64)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start episodes with the choice of a vehicle."""
        super().reset(which, seeds)
        self._next_key[which] = 0
        self._env_time[which] = 0
        return ArrayStep(self._observations(), env_time=self._env_time, next_key=self._next_key)

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Choose a vehicle (sub-step 0) or its next node (sub-step 1)."""
        numbers = self.numbers_of(which)
        is_moving = self._next_key[numbers] == 1
        choosing = numbers[~is_moving]
        moving = numbers[is_moving]
        result = ArrayStep({}, np.zeros(self.n_envs), env_time=self._env_time, next_key=self._next_key)
        if len(choosing):
            self._vehicle[choosing] = actions[0]["vehicle"][choosing]
            self._next_key[choosing] = 1
        if len(moving):
            node = actions[1]["node"][moving].astype(np.int64)
            result.reward, result.terminated = self._move(moving, self._vehicle[moving], node)
            result.actor_rewards = np.repeat(result.reward[:, np.newaxis] / 2, 2, axis=1)
            self._env_time[moving] += 1
            self._next_key[moving] = 0
            self._observe(moving)
        result.observation = self._observations()
        return result

    def maze_state(self, env: int) -> RoutingMazeState:
        """Return the state of one environment, in sub-step 1 with moves of the chosen vehicle only."""
        state = super().maze_state(env)
        return state.of_vehicle(int(self._vehicle[env])) if self._next_key[env] == 1 else state

    def _observations(self) -> dict[Any, dict[str, Array]]:
        """Observations of both sub-steps."""
        return {
            0: vehicles_observation(self._observation, self.n_vehicles),
            1: nodes_observation(self._observation, self.n_vehicles, self._vehicle),
        }
