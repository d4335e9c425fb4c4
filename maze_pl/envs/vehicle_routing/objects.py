"""States and actions of vehicle routing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, InstanceArrays, RoutingInstance
from maze_pl.envs.vehicle_routing.simulation import routes_of


@dataclass(frozen=True, slots=True)
class RoutingMazeAction:
    """Action of the simulation: a vehicle and where it goes.

    Attributes:
        vehicle: Index of the vehicle.
        node: The customer, or 0 for the depot.
    """

    vehicle: int
    node: int


@dataclass(frozen=True, slots=True, eq=False)
class RoutingMazeState:
    """State of the simulation; arrays are copies of those of `RoutingSimulation`, see there.

    Attributes:
        instance: The instance of the episode.
        arrays: The same instance, padded to C customers; never changes.
        position: [V] node of each vehicle.
        remaining: [V] its remaining capacity.
        unserved: [C + 1] customers that are not served yet.
        allowed: [V, C + 1] moves that may be chosen.
        length: Distance so far.
        n_routes: Number of vehicles that have returned.
        links: [C + 1, 2] nodes before and after each customer in planned routes.
        route_of: [C + 1] number of the planned route of each customer.
        move_vehicles: [M] vehicle of each move so far, returns included.
        move_nodes: [M] node of each move.
    """

    instance: RoutingInstance
    arrays: InstanceArrays
    position: Array
    remaining: Array
    unserved: Array
    allowed: Array
    length: float
    n_routes: int
    links: Array
    route_of: Array
    move_vehicles: Array
    move_nodes: Array

    @property
    def is_complete(self) -> bool:
        """True if all customers are served."""
        return not self.unserved.any()

    @property
    def routes(self) -> list[list[int]]:
        """Customers of each route, in the order in which vehicles left the depot."""
        return routes_of(self.move_vehicles, self.move_nodes, len(self.move_nodes))

    def of_vehicle(self, vehicle: int) -> RoutingMazeState:
        """Return the state after the first of two actors has chosen a vehicle.

        Only moves of the vehicle may be chosen. If none of them may be, or there is no such
        vehicle, the state stays as it is: whatever the second actor chooses is replaced.

        Args:
            vehicle: Index of the vehicle.
        """
        is_chosen = np.arange(len(self.allowed))[:, np.newaxis] == vehicle
        allowed = self.allowed & is_chosen
        return replace(self, allowed=allowed) if allowed.any() else self
