"""Complete routes, and their verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maze_pl.envs.vehicle_routing.instance import RoutingInstance

Routes = list[list[int]]
"""Customers of each route in order, without the depot."""


@dataclass(frozen=True)
class RoutingSolution:
    """Routes that serve all customers.

    Attributes:
        routes: Customers of each route in order, without the depot.
        distance: Total distance.
    """

    routes: Routes
    distance: float


def route_distance(instance: RoutingInstance, route: Sequence[int]) -> float:
    """Distance from the depot through customers and back.

    Args:
        instance: The instance.
        route: The customers in order.

    Example:
        >>> square = RoutingInstance("square", [(0, 0), (1, 0), (1, 1), (0, 1)], [0, 1, 1, 1], 3)
        >>> route_distance(square, [1, 2, 3])
        4.0
    """
    nodes = [0, *route, 0]
    return float(sum(instance.distances[nodes[:-1], nodes[1:]].tolist()))


def check_routes(instance: RoutingInstance, routes: Sequence[Sequence[int]]) -> RoutingSolution:
    """Verify routes, and return them with their total distance.

    Args:
        instance: The instance.
        routes: Customers of each route in order.

    Raises:
        ValueError: A customer does not exist, is served twice or never, or a route carries too much.
    """
    served: set[int] = set()
    for number, route in enumerate(routes, start=1):
        for customer in route:
            if not 1 <= customer <= instance.n_customers:
                there_are = f"there are only 1 to {instance.n_customers}"
                raise ValueError(f"{instance.name}: route {number} visits customer {customer}, but {there_are}")
            if customer in served:
                raise ValueError(f"{instance.name}: customer {customer} is served twice, again in route {number}")
            served.add(customer)
        load = int(instance.demands[list(route)].sum()) if route else 0
        if load > instance.capacity:
            fault = f"route {number} carries {load}, more than the capacity {instance.capacity}"
            raise ValueError(f"{instance.name}: {fault}")
    missing = sorted(set(range(1, instance.n_customers + 1)) - served)
    if missing:
        raise ValueError(f"{instance.name}: the routes leave out {len(missing)} customers, such as {missing[0]}")
    kept = [list(route) for route in routes if route]
    return RoutingSolution(kept, sum(route_distance(instance, route) for route in kept))
