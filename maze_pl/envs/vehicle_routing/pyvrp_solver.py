"""Routes by the hybrid genetic search of PyVRP."""

from __future__ import annotations

import importlib.util

import numpy as np

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.solution import RoutingSolution, check_routes

_STEPS = 10_000
"""Whole steps in the mean distance between two nodes: PyVRP computes in whole numbers."""


def solve_with_pyvrp(instance: RoutingInstance, time_limit: float = 10.0, seed: int = 0) -> RoutingSolution:
    """Minimise the total distance with PyVRP; needs the extra `problems`.

    Distances that are not whole numbers are rounded to 1 / 10,000 of the mean distance. The routes
    are verified before they are returned. Wouda et al. 2024 (INFORMS Journal on Computing 36(4),
    pp. 943-955).

    Args:
        instance: The instance.
        time_limit: Seconds.
        seed: Seed of the solver.

    Raises:
        ImportError: PyVRP is not installed.
        TimeoutError: No routes were found within the time limit.
        ValueError: The time limit is not positive.
    """
    if importlib.util.find_spec("pyvrp") is None:
        raise ImportError("the solver needs PyVRP; install it with pip install 'maze-pl[problems]'")
    if not time_limit > 0:
        raise ValueError(f"{time_limit=} (seconds) must be above 0")
    import pyvrp
    from pyvrp.stop import MaxRuntime

    is_whole = bool((instance.distances == np.floor(instance.distances)).all())
    steps = 1.0 if is_whole else _STEPS / instance.scale
    distances = np.rint(instance.distances * steps).astype(np.int64)
    places = instance.coordinates.tolist()
    demands = instance.demands[1:].tolist()
    data = pyvrp.ProblemData(
        locations=[pyvrp.Location(x, y) for x, y in places],
        clients=[pyvrp.Client(customer, delivery=[demand]) for customer, demand in enumerate(demands, start=1)],
        depots=[pyvrp.Depot(0)],
        vehicle_types=[pyvrp.VehicleType(instance.n_customers, capacity=[int(instance.capacity)])],
        distance_matrices=[distances],
        duration_matrices=[np.zeros_like(distances)],
    )
    result = pyvrp.solve(data, MaxRuntime(float(time_limit)), seed=int(seed), collect_stats=False, display=False)
    if not result.is_feasible():
        raise TimeoutError(f"PyVRP found no routes for {instance.name} in {time_limit} s; allow more time")
    routes: list[list[int]] = []
    for route in result.best.routes():
        routes.append([visit.idx + 1 for visit in route if visit.is_client()])
    return check_routes(instance, routes)
