"""Flat vehicle routing over arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_form_env import ArrayFormEnv
from maze_pl.envs.arrays.array_step import ArrayStep, EnvIndex
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.structured_env import Array
from maze_pl.envs.vehicle_routing.core_environment import Instances, checked_sizes, state_of
from maze_pl.envs.vehicle_routing.distance_reward_aggregator import DistanceRewardAggregator
from maze_pl.envs.vehicle_routing.environment import vehicle_routing_factory
from maze_pl.envs.vehicle_routing.events import RoutingEvents
from maze_pl.envs.vehicle_routing.instance import InstanceArrays, RoutingInstance
from maze_pl.envs.vehicle_routing.instance_source import draw_many
from maze_pl.envs.vehicle_routing.instance_sources import instance_sources
from maze_pl.envs.vehicle_routing.kpi_calculator import KPI_NAMES
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.observation_conversion import routing_observation
from maze_pl.envs.vehicle_routing.renderer import VehicleRoutingRenderer
from maze_pl.envs.vehicle_routing.routing_reward_aggregator import RoutingRewardAggregator
from maze_pl.envs.vehicle_routing.simulation import MoveResult, RoutingSimulation


class VehicleRoutingArrayEnvironment(ArrayFormEnv):
    """Flat vehicle routing over arrays, each episode equal to one of `VehicleRoutingEnvironment`.

    Args:
        instances: Random ones (`random(50)`) or files; one is drawn for each episode, with equal
            probabilities.
        max_customers: Maximum number of customers; the largest number of `instances` if None.
        n_vehicles: Maximum number of vehicles under way at the same time.
        reward_aggregator: Computes rewards; `DistanceRewardAggregator()` if None.
        advised: Whether observations show planned routes; see `ObservationConversion`.

    Raises:
        TypeError: The aggregator has no array form.
    """

    def __init__(
        self,
        instances: Instances,
        max_customers: int | None = None,
        n_vehicles: int = 1,
        reward_aggregator: RoutingRewardAggregator | None = None,
        advised: bool = False,
    ) -> None:
        single = vehicle_routing_factory(instances, max_customers, n_vehicles, advised=advised)
        super().__init__(single)
        self._flat_space = single.observation_spaces_dict[0]
        self.advised = advised
        self.sources = instance_sources(instances)
        self.max_customers = checked_sizes(self.sources, max_customers, n_vehicles)
        self.n_vehicles = n_vehicles
        aggregator = reward_aggregator or DistanceRewardAggregator()
        if not isinstance(aggregator, RoutingRewardAggregator):
            remedy = "derive it from RoutingRewardAggregator and define its rewards"
            fault = f"{type(aggregator).__name__} has no array form"
            raise TypeError(f"{fault}; {remedy}, or use the sequential environment")
        self.reward_aggregator = aggregator
        self._topic: Any = self.create_event_topic(RoutingEvents)

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs."""
        return KPI_NAMES

    def allocate(self, n_envs: int) -> None:
        """Make the arrays."""
        super().allocate(n_envs)
        self.simulation = RoutingSimulation(n_envs, self.max_customers, self.n_vehicles, self.advised)
        self._source = np.zeros(n_envs, np.int64)
        # made when `maze_state` needs them
        self._instances: list[RoutingInstance | None] = [None] * n_envs
        self._streams = RandomStreams(np.zeros(n_envs, np.int64))
        self._observation: dict[str, Array] = {}
        for name, space in self._flat_space.items():
            self._observation[name] = np.zeros((n_envs, *(space.shape or ())), np.float32)

    def reset(self, which: Array, seeds: Array) -> ArrayStep:
        """Start episodes."""
        self._streams.seed(seeds, which)
        drawn, self._source[which] = draw_many(self.sources, self._streams, which, self.max_customers)
        for env in which.tolist():
            self._instances[env] = None
        self.simulation.reset(which, drawn)
        return ArrayStep({0: self._observe(which)})

    def step(self, actions: Mapping[Any, Mapping[str, Array]], which: EnvIndex) -> ArrayStep:
        """Move a vehicle of each environment."""
        numbers = self.numbers_of(which)
        vehicle, node = np.divmod(actions[0]["option"][numbers].astype(np.int64), self.max_customers + 1)
        reward, terminated = self._move(numbers, vehicle, node)
        return ArrayStep({0: self._observe(numbers)}, reward, terminated)

    def _move(self, which: Array, vehicle: Array, node: Array) -> tuple[Array, Array]:
        """Move vehicles; returns rewards [N] and whether episodes are complete [N]."""
        simulation = self.simulation
        result = simulation.move(which, vehicle, node)
        self._topic.invalid_choice(
            which[~result.is_valid], vehicle=vehicle[~result.is_valid], node=node[~result.is_valid]
        )
        self._fire(which, result)
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, np.bool_)
        length = simulation.length[which]
        bound = simulation.instances.bound[which]
        reward[which] = self.reward_aggregator.scaled_rewards(result.total, length, result.is_complete, bound)
        terminated[which] = result.is_complete
        return reward, terminated

    def _fire(self, which: Array, result: MoveResult) -> None:
        """Fire the events of moves that were made."""
        simulation = self.simulation
        serves = result.node > 0
        customers = result.node[serves]
        demand = simulation.instances.demands[which[serves], customers]
        distance = result.distance[serves]
        self._topic.customer_served(which[serves], result.vehicle[serves], customers, demand, distance)
        for vehicle in range(self.n_vehicles):
            returns = ~np.isnan(result.returns[:, vehicle])
            values = {"distance": result.returns[returns, vehicle], "load": result.loads[returns, vehicle]}
            self._topic.vehicle_returned(which[returns], vehicle=vehicle, **values)
        complete = which[result.is_complete]
        self._topic.routes_completed(complete, simulation.length[complete], simulation.n_routes[complete])

    def _observe(self, which: Array) -> dict[str, Array]:
        """Observations [N, ...], computed for some environments."""
        if len(which) == 0:
            return self._observation
        simulation = self.simulation
        parts = [simulation.position, simulation.remaining, simulation.unserved, simulation.allowed]
        if self.advised:
            parts += [simulation.links, simulation.route_of]
        computed = routing_observation(simulation.instances, which, *(part[which] for part in parts))
        if len(which) == self.n_envs:
            self._observation = computed
        else:
            for name, array in computed.items():
                self._observation[name][which] = array
        return self._observation

    def kpis(self, which: Array) -> Mapping[str, Array]:
        """Return distance, number of routes and mean load; the gap is NaN without a best known distance."""
        simulation = self.simulation
        instances = simulation.instances
        n_routes = simulation.n_routes[which]
        is_complete = ~simulation.unserved[which].any(axis=1)
        load = instances.demands[which].sum(axis=1) / np.maximum(n_routes * instances.capacity[which], 1)
        best = np.maximum(instances.best_known[which], 1e-9)
        values = {
            "distance": simulation.length[which],
            "gap_percent": 100 * (simulation.length[which] / best - 1),
            "bound_gap_percent": 100 * (simulation.length[which] / instances.bound[which] - 1),
            "n_routes": n_routes.astype(np.float64),
            "mean_load": load,
        }
        return {name: np.where(is_complete, value, np.nan) for name, value in values.items()}

    def get_renderer(self) -> VehicleRoutingRenderer:
        """Return the renderer of the map."""
        return VehicleRoutingRenderer()

    def maze_state(self, env: int) -> RoutingMazeState:
        """Return the state of one environment; all states of an episode have the same instance."""
        instance = self._instances[env]
        if instance is None:
            source = self.sources[int(self._source[env])]
            instance = source.instance_in(self.simulation.instances, env)
            self._instances[env] = instance
        return state_of(self.simulation, env, instance, InstanceArrays.of([instance], self.max_customers))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; see `ArrayEnv.load_state_dict`."""
        # in states of earlier versions, the episodes under way have no best known distance
        best_known = np.full(self.n_envs, np.nan)
        super().load_state_dict({"instances_best_known": best_known, **state})
        self._instances = [None] * self.n_envs

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state, by name."""
        yield from super()._arrays()
        yield from self.simulation.arrays()
        for name, array in self._observation.items():
            yield f"observation_{name}", array
