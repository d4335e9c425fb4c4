"""The savings algorithm of Clarke and Wright."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, RoutingInstance
from maze_pl.envs.vehicle_routing.solution import Routes, RoutingSolution, check_routes


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
    customers = np.arange(1, instance.n_customers + 1)
    routes = merged_routes(instance.distances, instance.demands, instance.capacity, customers)
    return check_routes(instance, routes)


def merged_routes(
    distances: Array, demands: Array, capacity: int, customers: Array, begun: Mapping[int, int] | None = None
) -> Routes:
    """Merge routes of single customers, and the rest of routes that vehicles have begun; see `savings_routes`.

    A route that a vehicle has begun goes on from its place. It is one of the routes that are merged,
    but only at this end.

    Args:
        distances: [C + 1, C + 1].
        demands: [C + 1].
        capacity: Capacity of each vehicle.
        customers: [n] customers that are not served yet, ascending.
        begun: Place of a vehicle, a customer that it has served -> its remaining capacity.

    Returns:
        All routes; those of vehicles begin with their places.
    """
    begun = begun or {}
    nodes = np.sort(np.concatenate([customers, np.array([*begun], np.int64)]))
    first, second = np.triu_indices(len(nodes), 1)
    first = nodes[first]
    second = nodes[second]
    of_depot = distances[0]
    savings = of_depot[first] + of_depot[second] - distances[first, second]
    order = np.argsort(-savings, kind="stable")
    order = order[savings[order] > 0]
    route_of = {node: [node] for node in nodes.tolist()}
    load_of = {node: capacity - begun[node] if node in begun else int(demands[node]) for node in route_of}
    loads = {id(route_of[node]): load for node, load in load_of.items()}
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        left = route_of[i]
        right = route_of[j]
        if left is right or loads[id(left)] + loads[id(right)] > capacity:
            continue
        if right[0] in begun:
            left, right = right, left
            i, j = j, i
        is_end = i == left[-1] or (i == left[0] and i not in begun)
        if right[0] in begun or not is_end or j not in (right[0], right[-1]):
            continue
        if left[-1] != i:
            if left[0] in begun:
                continue
            left.reverse()
        if right[0] != j:
            right.reverse()
        left.extend(right)
        loads[id(left)] += loads[id(right)]
        for customer in right:
            route_of[customer] = left
    return [route for node, route in route_of.items() if min(route) == node]
