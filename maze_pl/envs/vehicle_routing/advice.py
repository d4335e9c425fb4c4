"""Routes of a rule that observations show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, InstanceArrays, RoutingInstance
from maze_pl.envs.vehicle_routing.savings import savings_routes
from maze_pl.envs.vehicle_routing.solution import RoutingSolution
from maze_pl.envs.vehicle_routing.sweep import sweep_routes

ADVICE: dict[str, Callable[[RoutingInstance], RoutingSolution]] = {"savings": savings_routes, "sweep": sweep_routes}
"""Name -> rule."""


def check_advice(advice: str | None) -> None:
    """Refuse an unknown rule.

    Args:
        advice: Name of the rule, or None.

    Raises:
        ValueError: There is no such rule.
    """
    if advice is not None and advice not in ADVICE:
        raise ValueError(f"{advice=} is unknown; expected {', '.join(ADVICE)} or null")


def put_advice(arrays: InstanceArrays, place: int, routes: Sequence[Sequence[int]]) -> None:
    """Write the routes of an instance into `arrays.links` and `arrays.route_of`.

    Args:
        arrays: Holds the instance.
        place: Its place.
        routes: Customers of each route.
    """
    for number, route in enumerate(routes):
        stops = np.array([0, *route, 0])
        arrays.links[place, stops[1:-1], 0] = stops[:-2]
        arrays.links[place, stops[1:-1], 1] = stops[2:]
        arrays.route_of[place, stops[1:-1]] = number


def advise(arrays: InstanceArrays, advice: str, seeds: Array) -> None:
    """Compute the routes of a rule for all instances, once for equal seeds.

    Args:
        arrays: n instances.
        advice: Name of the rule.
        seeds: [n] seeds that the instances were drawn with.
    """
    _, first, same = np.unique(seeds, return_index=True, return_inverse=True)
    for place in first.tolist():
        put_advice(arrays, place, ADVICE[advice](arrays.instance(place, "instance")).routes)
    arrays.links[:] = arrays.links[first[same]]
    arrays.route_of[:] = arrays.route_of[first[same]]
