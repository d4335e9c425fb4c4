"""The savings algorithm of Clarke and Wright."""

from __future__ import annotations

import numpy as np

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.solution import RoutingSolution, check_routes


def savings_routes(instance: RoutingInstance) -> RoutingSolution:
    """Build routes by merging those that save most, all routes in parallel.

    At first, each customer has its own route. Two routes that end at i and at j are joined if both
    loads fit into a vehicle, in the order of the savings, ties in the order of (i, j):

        s(i, j) = d(i, 0) + d(0, j) - d(i, j)

    Pairs that save nothing are not joined. Clarke and Wright 1964 (Operations Research 12(4), pp.
    568-581).

    Args:
        instance: The instance.

    Example:
        >>> instance = RoutingInstance("three", [(0, 0), (5, 1), (5, -1), (-3, 0)], [0, 1, 1, 1], 2)
        >>> savings_routes(instance).routes
        [[1, 2], [3]]
    """
    first, second = np.triu_indices(instance.n_customers, 1)
    first = first + 1
    second = second + 1
    of_depot = instance.distances[0]
    savings = of_depot[first] + of_depot[second] - instance.distances[first, second]
    order = np.argsort(-savings, kind="stable")
    order = order[savings[order] > 0]
    route_of: list[list[int]] = [[customer] for customer in range(instance.n_customers + 1)]
    loads = {id(route): int(instance.demands[route[0]]) for route in route_of}
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        left = route_of[i]
        right = route_of[j]
        load = loads[id(left)] + loads[id(right)]
        is_end = i in (left[0], left[-1]) and j in (right[0], right[-1])
        if left is right or not is_end or load > instance.capacity:
            continue
        if left[-1] != i:
            left.reverse()
        if right[0] != j:
            right.reverse()
        left.extend(right)
        loads[id(left)] = load
        for customer in right:
            route_of[customer] = left
    routes: list[list[int]] = []
    for customer in range(1, instance.n_customers + 1):
        if min(route_of[customer]) == customer:
            routes.append(route_of[customer])
    return check_routes(instance, routes)
