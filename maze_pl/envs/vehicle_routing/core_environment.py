"""The simulation: vehicles serve customers, one move after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.envs.core_env import CoreEnv, RewardAggregatorInterface, take_over
from maze_pl.envs.vehicle_routing.distance_reward_aggregator import DistanceRewardAggregator
from maze_pl.envs.vehicle_routing.events import RoutingEvents
from maze_pl.envs.vehicle_routing.instance import InstanceArrays, RoutingInstance
from maze_pl.envs.vehicle_routing.instance_source import InstanceSource, draw_one
from maze_pl.envs.vehicle_routing.instance_sources import instance_sources
from maze_pl.envs.vehicle_routing.kpi_calculator import RoutingKpiCalculator
from maze_pl.envs.vehicle_routing.objects import RoutingMazeAction, RoutingMazeState
from maze_pl.envs.vehicle_routing.renderer import VehicleRoutingRenderer
from maze_pl.envs.vehicle_routing.simulation import MoveResult, RoutingSimulation

Instances = Sequence[str | Path | RoutingInstance | InstanceSource]

_ONLY = np.zeros(1, np.int64)


class VehicleRoutingCoreEnvironment(CoreEnv):
    """Capacitated vehicle routing, with the total distance as objective.

    Each step moves one of the vehicles to a customer or back to the depot; see `RoutingSimulation`.
    A move that is not allowed is replaced by the nearest allowed customer (`invalid_choice`), so
    that every policy ends with complete routes.

    Args:
        instances: Random ones (`random(50)`) or files; one is drawn for each episode, with equal
            probabilities.
        max_customers: Maximum number of customers; the largest number of `instances` if None.
        n_vehicles: Maximum number of vehicles under way at the same time.
        reward_aggregator: Computes rewards; `DistanceRewardAggregator()` if None.
        advised: Whether observations show planned routes; see `ObservationConversion`.

    Raises:
        ValueError: An instance is unknown, malformed or too large, or an option is out of range.
    """

    def __init__(
        self,
        instances: Instances,
        max_customers: int | None = None,
        n_vehicles: int = 1,
        reward_aggregator: RewardAggregatorInterface | None = None,
        advised: bool = False,
    ) -> None:
        super().__init__()
        self.sources = instance_sources(instances)
        self.max_customers = checked_sizes(self.sources, max_customers, n_vehicles)
        self.n_vehicles = n_vehicles
        self.simulation = RoutingSimulation(1, self.max_customers, n_vehicles, advised)
        self.reward_aggregator = reward_aggregator or DistanceRewardAggregator()
        self.pubsub.register_subscriber(self.reward_aggregator)
        self._events = self.pubsub.create_event_topic(RoutingEvents)
        self._generator = np.random.default_rng()
        self._stepped_at = -1
        self.reset()  # so that there is a state

    def reset(self) -> RoutingMazeState:
        """Start an instance with all vehicles at the depot."""
        if self.context.env_time:  # without a `MazeEnv`, which would have begun the episode
            self.context.reset_episode()
        self.pubsub.clear()
        self._stepped_at = -1
        self._instance = draw_one(self.sources, self._generator)
        self._arrays = InstanceArrays.of([self._instance], self.max_customers)
        self.simulation.reset(_ONLY, self._arrays)
        return self.get_maze_state()

    def step(self, maze_action: RoutingMazeAction) -> tuple[RoutingMazeState, float, bool, bool, dict[str, Any]]:
        """Move a vehicle.

        Returns:
            State, reward, terminated (all customers are served), truncated (always False), and
            info, which names a move that was not allowed.

        Raises:
            ValueError: All customers are served; start another episode.
        """
        simulation = self.simulation
        if not simulation.unserved.any():
            raise ValueError(f"all customers of {self._instance.name} are served; call reset first")
        if self.context.env_time == self._stepped_at:  # without a `MazeEnv`, which would keep time
            self.pubsub.clear()
            self.context.env_time += 1
        self._stepped_at = self.context.env_time
        vehicle = np.array([maze_action.vehicle])
        result = simulation.move(_ONLY, vehicle, np.array([maze_action.node]))
        info: dict[str, Any] = {}
        if not result.is_valid[0]:
            self._events.invalid_choice(vehicle=maze_action.vehicle, node=maze_action.node)
            info = {"error": "move_not_allowed"}
        self._fire(result)
        maze_state = self.get_maze_state()
        reward = self.reward_aggregator.summarize_reward(maze_state)
        return maze_state, reward, bool(result.is_complete[0]), False, info

    def _fire(self, result: MoveResult) -> None:
        """Fire the events of a move that was made."""
        node = int(result.node[0])
        if node:
            self._events.customer_served(
                vehicle=int(result.vehicle[0]),
                customer=node,
                demand=int(self.simulation.instances.demands[0, node]),
                distance=float(result.distance[0]),
            )
        for vehicle in np.flatnonzero(~np.isnan(result.returns[0])).tolist():
            distance = float(result.returns[0, vehicle])
            self._events.vehicle_returned(vehicle=vehicle, distance=distance, load=float(result.loads[0, vehicle]))
        if result.is_complete[0]:
            length = float(self.simulation.length[0])
            self._events.routes_completed(distance=length, n_routes=int(self.simulation.n_routes[0]))

    def get_maze_state(self) -> RoutingMazeState:
        """Return a copy of the state."""
        return state_of(self.simulation, 0, self._instance, self._arrays)

    def seed(self, seed: int) -> None:
        """Seed the generator that instances are drawn with."""
        self._generator = np.random.default_rng(seed)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def clone_from(self, env: Any) -> None:
        """Take over the state of another simulation; see `CoreEnv.clone_from`."""
        take_over(self, env)

    def get_renderer(self) -> VehicleRoutingRenderer:
        """Return the renderer of the map."""
        return VehicleRoutingRenderer()

    def get_kpi_calculator(self) -> RoutingKpiCalculator:
        """Return the calculator of the total distance and its gap."""
        return RoutingKpiCalculator()


def state_of(
    simulation: RoutingSimulation, env: int, instance: RoutingInstance, arrays: InstanceArrays
) -> RoutingMazeState:
    """Return a copy of the state of one episode.

    Args:
        simulation: The simulation.
        env: Number of the episode.
        instance: Its instance.
        arrays: Its instance, padded.
    """
    n_moves = int(simulation.n_moves[env])
    return RoutingMazeState(
        instance=instance,
        arrays=arrays,
        position=simulation.position[env].copy(),
        remaining=simulation.remaining[env].copy(),
        unserved=simulation.unserved[env].copy(),
        allowed=simulation.allowed[env].copy(),
        length=float(simulation.length[env]),
        n_routes=int(simulation.n_routes[env]),
        links=simulation.links[env].copy(),
        route_of=simulation.route_of[env].copy(),
        move_vehicles=simulation.move_vehicles[env, :n_moves].copy(),
        move_nodes=simulation.move_nodes[env, :n_moves].copy(),
    )


def checked_sizes(sources: Sequence[InstanceSource], max_customers: int | None, n_vehicles: int) -> int:
    """Return the maximum number of customers: that of the instances if it is not given.

    Args:
        sources: Sources of the instances.
        max_customers: The given number, or None.
        n_vehicles: Number of vehicles.

    Raises:
        ValueError: There are more customers, or there is no vehicle.
    """
    most = max(source.max_customers for source in sources)
    if n_vehicles < 1:
        raise ValueError(f"{n_vehicles=} must be at least 1")
    if max_customers is None:
        return most
    if max_customers < most:
        fault = f"{max_customers=} is less than the {most} of the largest instance"
        raise ValueError(f"{fault}; give at least {most}")
    return max_customers
