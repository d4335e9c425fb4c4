"""The savings algorithm of Clarke and Wright, and its improvement by route shapes and 2-opt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, RoutingInstance
from maze_pl.envs.vehicle_routing.solution import Routes, RoutingSolution, check_routes
from maze_pl.envs.vehicle_routing.two_opt import two_opt

ROUTE_SHAPES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
"""Weights of the distance between customers that `improved_savings_routes` tries."""


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
    savings = Savings(instance.distances, instance.demands, instance.capacity, customers)
    return check_routes(instance, savings.routes())


def improved_savings_routes(instance: RoutingInstance) -> RoutingSolution:
    """Build routes by savings of several route shapes, improve them by 2-opt, and return the shortest ones.

    The distance between customers counts with a weight, the route shape, which is 1 in `savings_routes`:

        s(i, j) = d(i, 0) + d(0, j) - shape * d(i, j),   shape = 0.8, 0.9, ..., 1.6

    Gaskell 1967 (Operational Research Quarterly 18(3), pp. 281-295); Yellow 1970 (Operational
    Research Quarterly 21(2), pp. 281-283).

    Args:
        instance: The instance.
    """
    customers = np.arange(1, instance.n_customers + 1)
    routes, _ = Savings(instance.distances, instance.demands, instance.capacity, customers).improved_routes()
    return check_routes(instance, routes)


class Savings:
    """Customers that wait and vehicles under way, whose routes are merged; see `savings_routes`.

    A route that a vehicle has begun goes on from its place. It is one of the routes that are
    merged, but only at this end.

    Args:
        distances: [C + 1, C + 1].
        demands: [C + 1].
        capacity: Capacity of each vehicle.
        customers: [n] customers that are not served yet, ascending.
        begun: Place of a vehicle, a customer that it has served -> its remaining capacity.
    """

    def __init__(
        self,
        distances: Array,
        demands: Array,
        capacity: int,
        customers: Array,
        begun: Mapping[int, int] | None = None,
    ) -> None:
        begun = begun or {}
        self._distances = distances
        self._capacity = capacity
        self._nodes = np.sort(np.concatenate([customers, np.array([*begun], np.int64)]))
        # From here on, nodes have their places in this array as numbers.
        nodes = self._nodes.tolist()
        self._is_begun = [node in begun for node in nodes]
        self._loads = [capacity - begun[node] if node in begun else int(demands[node]) for node in nodes]
        self._first, self._second = np.triu_indices(len(nodes), 1)
        to_depot = distances[0, self._nodes]
        self._to_depot = to_depot[self._first] + to_depot[self._second]
        self._between = distances[self._nodes[self._first], self._nodes[self._second]]

    def routes(self, shape: float = 1.0) -> Routes:
        """Merge the routes of single customers, and the rest of routes that vehicles have begun.

        Args:
            shape: Weight of the distance between customers.

        Returns:
            All routes; those of vehicles begin with their places.
        """
        savings = self._to_depot - shape * self._between
        order = np.argsort(-savings, kind="stable")[: np.count_nonzero(savings > 0)]
        pairs = zip(self._first[order].tolist(), self._second[order].tolist(), strict=True)
        capacity = self._capacity
        is_begun = self._is_begun
        loads = [*self._loads]
        routes = {number: [number] for number in range(len(loads))}  # a route has the number of one of its nodes
        route_of = [*routes]
        is_end = [True] * len(loads)  # where another route may be joined
        for i, j in pairs:
            if not (is_end[i] and is_end[j]):
                continue
            left = route_of[i]
            right = route_of[j]
            if left == right or loads[left] + loads[right] > capacity or (is_begun[left] and is_begun[right]):
                continue
            if is_begun[right]:
                left, right = right, left
                i, j = j, i
            start = routes[left]
            rest = routes.pop(right)
            if start[-1] != i:
                start.reverse()
            if rest[0] != j:
                rest.reverse()
            is_end[i] = len(start) == 1 and not is_begun[left]
            is_end[j] = len(rest) == 1
            start.extend(rest)
            loads[left] += loads[right]
            for number in rest:
                route_of[number] = left
        return [self._nodes[route].tolist() for route in sorted(routes.values(), key=min)]

    def improved_routes(self, shapes: Sequence[float] = ROUTE_SHAPES) -> tuple[Routes, float]:
        """Merge routes with each of several shapes, and improve them by 2-opt.

        Args:
            shapes: Weights of the distance between customers.

        Returns:
            The shortest routes, as of `routes`, and their shape.
        """
        known: dict[tuple[int, ...], tuple[list[int], float]] = {}
        best: Routes = []
        best_shape = shapes[0]
        shortest = np.inf
        for shape in shapes:
            routes = []
            total = 0.0
            for route in self.routes(shape):
                key = tuple(route)
                if key not in known:
                    known[key] = self._improved(route)
                improved, distance = known[key]
                routes.append(improved)
                total += distance
            if total < shortest:
                best = routes
                best_shape = shape
                shortest = total
        return best, best_shape

    def _improved(self, route: list[int]) -> tuple[list[int], float]:
        """Return a route after 2-opt, and its distance."""
        is_begun = self._is_begun[int(np.searchsorted(self._nodes, route[0]))]
        path = two_opt(self._distances, [*route, 0] if is_begun else [0, *route, 0])
        distance = float(self._distances[path[:-1], path[1:]].sum())
        return path[:-1] if is_begun else path[1:-1], distance
