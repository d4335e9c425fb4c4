"""The sweep of Gillett and Miller."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.solution import RoutingSolution, check_routes, route_distance
from maze_pl.envs.vehicle_routing.two_opt import two_opt


def sweep_routes(instance: RoutingInstance) -> RoutingSolution:
    """Build routes by turning a ray around the depot.

    Customers are served in the order of their angles, and a route ends when the next demand does
    not fit. Each customer is tried as the first one, in both directions of turning. The order
    within a route is that of the nearest neighbour, improved by 2-opt. The shortest result is
    returned. Gillett and Miller 1974 (Operations Research 22(2), pp. 340-349). Departure: routes do
    not exchange customers afterwards.

    Args:
        instance: The instance.

    Example:
        >>> instance = RoutingInstance("four", [(0, 0), (2, 1), (2, -1), (-2, 1), (-2, -1)], [0, 1, 1, 1, 1], 2)
        >>> sorted(sorted(route) for route in sweep_routes(instance).routes)
        [[1, 2], [3, 4]]
    """
    places = instance.coordinates[1:] - instance.coordinates[0]
    angles = np.arctan2(places[:, 1], places[:, 0])
    order = (np.argsort(angles, kind="stable") + 1).tolist()
    tours: dict[tuple[int, ...], list[int]] = {}  # customers of a route -> their order
    best: list[list[int]] = []
    shortest = np.inf
    for turned in (order, order[::-1]):
        for start in range(len(turned)):
            routes = []
            for cluster in _clusters(instance, turned[start:] + turned[:start]):
                key = tuple(sorted(cluster))
                if key not in tours:
                    tour = [0, *nearest_neighbour_tour(instance, key), 0]
                    tours[key] = two_opt(instance.distances, tour)[1:-1]
                routes.append(tours[key])
            distance = sum(route_distance(instance, route) for route in routes)
            if distance < shortest:
                shortest = distance
                best = routes
    return check_routes(instance, best)


def _clusters(instance: RoutingInstance, order: list[int]) -> list[list[int]]:
    """Customers of each route, in the order of the sweep."""
    clusters: list[list[int]] = [[]]
    load = 0
    for customer in order:
        demand = int(instance.demands[customer])
        if load + demand > instance.capacity:
            clusters.append([])
            load = 0
        clusters[-1].append(customer)
        load += demand
    return clusters


def nearest_neighbour_tour(instance: RoutingInstance, customers: tuple[int, ...]) -> list[int]:
    """Order of customers in which the next one is always the nearest, from the depot.

    Args:
        instance: The instance.
        customers: The customers.
    """
    left = list(customers)
    tour: list[int] = []
    node = 0
    while left:
        node = left.pop(int(instance.distances[node, left].argmin()))
        tour.append(node)
    return tour
