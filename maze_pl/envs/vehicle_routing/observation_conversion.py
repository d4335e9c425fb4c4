"""Observations of flat vehicle routing, of one episode and of many in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.vehicle_routing.instance import Array, InstanceArrays
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.simulation import in_begun_routes

N_FEATURES = 18
N_ADVISED_FEATURES = 20
N_SUMMARY = 8

_LARGEST = 1000.0
"""Bound of all features."""

_FAR = 1e12
"""Distance of nodes that do not count, in minima."""


class ObservationConversion(ObservationConversionInterface):
    """Observations: numbers of each option, which options may be chosen, and a summary.

    All numbers are ratios, so that instances in different units look alike: distances are divided
    by the mean distance s between two nodes, demands by the capacity Q. An option sends a vehicle,
    which is at x with a remaining capacity r, to a node j with demand q; 0 is the depot:

        0  d(x, j) / s
        1  d(0, j) / s
        2  (d(x, 0) + d(0, j) - d(x, j)) / s, what is saved by driving from x to j without the depot
        3  (d(x, j) - distance from x to the nearest customer that it can serve) / s
        4  place of j along the direction from the depot to x / s
        5  place of j across that direction / s
        6  cosine of the angle between j and that direction, seen from the depot
        7  distance from j to the nearest other unserved customer / s
        8  distance from j to the third nearest other unserved customer / s
        9  (d(x, j) - distance from j to the nearest other vehicle or the depot) / s
        10 q / Q
        11 r / Q
        12 (r - q) / Q
        13 d(x, 0) / s
        14 d(0, j) / largest distance of an unserved customer from the depot
        15 1 if j is the depot
        16 1 if the vehicle may go to j
        17 1 if x is not the depot

    With advice, routes to all unserved customers are observed, too. They are planned by
    `improved_savings_routes` when an episode starts, and again from the current state whenever a
    vehicle leaves them or returns to the depot:

        18 1 if they go from x to j; where x is the depot, if they begin or end at j and no vehicle is under way on them
        19 1 if x and j are in one of these routes

    At the depot, the direction is that to the mean place of all unserved customers. Numbers 7 and 8
    are 0 without such a customer. Summary: unserved share of customers; loads (unserved demand / Q)
    / 10; loads that are left when vehicles under way are full, / 10, and how much of the last one
    of these is empty; share of vehicles that are under way; mean distance of unserved customers
    from the depot / s; allowed options per customer; log(customers) / 5.

    Args:
        max_customers: Maximum number of customers, C.
        n_vehicles: Number of vehicles under way, V.
        is_advised: Whether planned routes are observed.
    """

    def __init__(self, max_customers: int, n_vehicles: int, is_advised: bool = False) -> None:
        self.is_advised = is_advised
        self.n_features = N_ADVISED_FEATURES if is_advised else N_FEATURES
        self.max_customers = max_customers
        self.n_vehicles = n_vehicles

    def space(self) -> spaces.Dict:
        """Return the space of all observations, float32.

        `options` [V * (C + 1), 18 or 20], `option_mask` [V * (C + 1)], 1 for options that may be
        chosen, `exists` [V * (C + 1)], 1 for those and for unserved customers that the vehicle
        cannot serve, and `summary` [8].
        """
        n = self.n_vehicles * (self.max_customers + 1)
        return spaces.Dict(
            options=spaces.Box(-_LARGEST, _LARGEST, (n, self.n_features)),
            option_mask=spaces.Box(0, 1, (n,)),
            exists=spaces.Box(0, 1, (n,)),
            summary=spaces.Box(-_LARGEST, _LARGEST, (N_SUMMARY,)),
        )

    def maze_to_space(self, maze_state: RoutingMazeState) -> Observation:
        """Observation of a state."""
        parts = [maze_state.position, maze_state.remaining, maze_state.unserved, maze_state.allowed]
        if self.is_advised:
            parts += [maze_state.links, maze_state.route_of]
        stacked = (part[np.newaxis] for part in parts)
        observation = routing_observation(maze_state.arrays, np.zeros(1, np.int64), *stacked)
        return {name: array[0] for name, array in observation.items()}


def routing_observation(
    instances: InstanceArrays,
    which: Array,
    position: Array,
    remaining: Array,
    unserved: Array,
    allowed: Array,
    links: Array | None = None,
    route_of: Array | None = None,
) -> dict[str, Array]:
    """Observations of n episodes; see `ObservationConversion`.

    Args:
        instances: Instances of N episodes.
        which: [n] numbers of the episodes.
        position: [n, V] node of each vehicle.
        remaining: [n, V] its remaining capacity.
        unserved: [n, C + 1] customers that are not served yet.
        allowed: [n, V, C + 1] moves that may be chosen.
        links: [n, C + 1, 2] neighbours in planned routes; None without advice.
        route_of: [n, C + 1] numbers of planned routes; None without advice.

    Returns:
        Name -> [n, ...], as in the space of `ObservationConversion`.
    """
    state = _State(instances, which, position, remaining, unserved, allowed, links, route_of)
    n, n_vehicles, n_nodes = allowed.shape
    exists = unserved[:, np.newaxis] & allowed.any(axis=2, keepdims=True)
    exists[:, :, 0] = allowed[:, :, 0]
    rows = state.features()
    rows *= exists
    np.clip(rows, -_LARGEST, _LARGEST, out=rows)
    options = np.ascontiguousarray(np.moveaxis(rows, 0, -1), np.float32)
    return {
        "options": options.reshape(n, n_vehicles * n_nodes, len(rows)),
        "option_mask": allowed.reshape(n, n_vehicles * n_nodes).astype(np.float32),
        "exists": exists.reshape(n, n_vehicles * n_nodes).astype(np.float32),
        "summary": state.summary(),
    }


class _State:
    """Parts of n states from which features are computed."""

    def __init__(
        self,
        instances: InstanceArrays,
        which: Array,
        position: Array,
        remaining: Array,
        unserved: Array,
        allowed: Array,
        links: Array | None,
        route_of: Array | None,
    ) -> None:
        self.links = links
        self.route_of = route_of
        self.position = position
        self.remaining = remaining
        self.unserved = unserved
        self.allowed = allowed
        self.coordinates = instances.coordinates[which]
        self.demands = instances.demands[which]
        self.distances = instances.distances[which]
        self.capacity = instances.capacity[which]
        self.n_customers = instances.n_customers[which]
        self.scale = instances.scale[which]
        self.is_away = position > 0
        self.of_depot = self.distances[:, 0]  # [n, C + 1]
        self._rows = np.arange(len(which))[:, np.newaxis]

    def features(self) -> Array:
        """Features [18 or 20, n, V, C + 1] of all options, also of those that do not exist."""
        of_vehicle = self.distances[self._rows, self.position]  # [n, V, C + 1]
        home = self.of_depot[self._rows, self.position][..., np.newaxis]
        of_depot = self.of_depot[:, np.newaxis]
        demands = self.demands[:, np.newaxis]
        capacity = self.capacity[:, np.newaxis, np.newaxis]
        remaining = self.remaining[..., np.newaxis]
        rows = np.empty((N_FEATURES if self.links is None else N_ADVISED_FEATURES, *self.allowed.shape))
        rows[0] = of_vehicle
        rows[1] = of_depot
        rows[2] = home + of_depot - of_vehicle
        rows[3] = of_vehicle - self._nearest(of_vehicle)
        rows[4], rows[5] = self._places()
        cosine = np.divide(rows[4], of_depot, out=rows[6], where=of_depot > 0)
        cosine[np.broadcast_to(of_depot == 0, cosine.shape)] = 0.0
        rows[7], rows[8] = self._neighbours()
        rows[9] = of_vehicle - self._others(of_vehicle)
        rows[13] = home
        rows[[0, 1, 2, 3, 4, 5, 7, 8, 9, 13]] /= self.scale[:, np.newaxis, np.newaxis]
        rows[10] = demands / capacity
        rows[11] = remaining / capacity
        rows[12] = (remaining - demands) / capacity
        farthest = np.where(self.unserved, self.of_depot, 0.0).max(axis=1)
        rows[14] = of_depot / np.where(farthest > 0, farthest, 1.0)[:, np.newaxis, np.newaxis]
        rows[15] = np.arange(self.unserved.shape[1]) == 0
        rows[16] = self.allowed
        rows[17] = self.is_away[..., np.newaxis]
        if self.links is not None and self.route_of is not None:
            rows[18] = self._is_linked(self.links, self.route_of)
            rows[19] = self._is_in_route(self.route_of)
        return rows

    def _is_linked(self, links: Array, route_of: Array) -> Array:
        """[n, V, C + 1] whether planned routes connect the place of each vehicle with each node directly."""
        nodes = np.arange(self.unserved.shape[1])
        of_vehicle = links[self._rows, self.position][..., np.newaxis] == nodes
        of_node = links[:, np.newaxis] == self.position[..., np.newaxis, np.newaxis]
        is_linked = of_vehicle.any(axis=2) | of_node.any(axis=3)
        is_linked &= self.is_away[..., np.newaxis] | ~in_begun_routes(route_of, self.position)[:, np.newaxis]
        return np.asarray(is_linked)

    def _is_in_route(self, route_of: Array) -> Array:
        """[n, V, C + 1] whether each customer is in the planned route of the place of each vehicle."""
        of_vehicle = route_of[self._rows, self.position][..., np.newaxis]
        return np.asarray((of_vehicle == route_of[:, np.newaxis]) & (of_vehicle >= 0))

    def _nearest(self, of_vehicle: Array) -> Array:
        """[n, V, 1] distance from each vehicle to the nearest customer that it can serve; 0 without one."""
        to_customers = np.where(self.allowed, of_vehicle, _FAR)
        to_customers[:, :, 0] = _FAR
        nearest = to_customers.min(axis=2, keepdims=True)
        return np.where(nearest < _FAR, nearest, 0.0)

    def _places(self) -> tuple[Array, Array]:
        """[n, V, C + 1] place of each node along and across the direction of each vehicle from the depot."""
        x = self.coordinates[:, :, 0] - self.coordinates[:, :1, 0]
        y = self.coordinates[:, :, 1] - self.coordinates[:, :1, 1]
        count = np.maximum(np.count_nonzero(self.unserved, axis=1), 1)
        mean_x = (np.where(self.unserved, x, 0.0).sum(axis=1) / count)[:, np.newaxis]
        mean_y = (np.where(self.unserved, y, 0.0).sum(axis=1) / count)[:, np.newaxis]
        to_x = np.where(self.is_away, x[self._rows, self.position], mean_x)
        to_y = np.where(self.is_away, y[self._rows, self.position], mean_y)
        length = np.sqrt(to_x * to_x + to_y * to_y)
        is_zero = length == 0
        length[is_zero] = 1.0
        unit_x = np.where(is_zero, 1.0, to_x / length)[..., np.newaxis]
        unit_y = (to_y / length)[..., np.newaxis]
        x = x[:, np.newaxis]
        y = y[:, np.newaxis]
        return x * unit_x + y * unit_y, y * unit_x - x * unit_y

    def _neighbours(self) -> tuple[Array, Array]:
        """[n, 1, C + 1] distance from each node to the nearest and third nearest unserved customer."""
        others = np.where(self.unserved[:, np.newaxis], self.distances, _FAR)
        nodes = np.arange(self.unserved.shape[1])
        others[:, nodes, nodes] = _FAR
        third = min(2, others.shape[2] - 1)
        sorted_first = np.partition(others, (0, third), axis=2)
        near = sorted_first[:, np.newaxis, :, 0]
        far = sorted_first[:, np.newaxis, :, third]
        near = np.where(near < _FAR, near, 0.0)
        return near, np.where(far < _FAR, far, 0.0)

    def _others(self, of_vehicle: Array) -> Array:
        """[n, V, C + 1] distance from each node to the nearest other vehicle under way, or to the depot."""
        of_depot = np.broadcast_to(self.of_depot[:, np.newaxis], of_vehicle.shape)
        n_vehicles = of_vehicle.shape[1]
        if n_vehicles == 1:
            return of_depot
        away = np.where(self.is_away[..., np.newaxis], of_vehicle, of_depot)
        nearest = of_depot.copy()
        for vehicle in range(n_vehicles):
            for other in range(n_vehicles):
                if other != vehicle:
                    np.minimum(nearest[:, vehicle], away[:, other], out=nearest[:, vehicle])
        return nearest

    def summary(self) -> Array:
        """Numbers of the whole state [n, 8], float32."""
        n_unserved = np.count_nonzero(self.unserved, axis=1)
        demand = np.where(self.unserved, self.demands, 0).sum(axis=1)
        room = np.where(self.is_away, self.remaining, 0).sum(axis=1)
        loads = np.maximum(demand - room, 0) / self.capacity
        distance = np.where(self.unserved, self.of_depot, 0.0).sum(axis=1)
        numbers: list[Any] = [
            n_unserved / self.n_customers,
            demand / self.capacity / 10,
            loads / 10,
            np.ceil(loads) - loads,
            self.is_away.mean(axis=1),
            distance / np.maximum(n_unserved, 1) / self.scale,
            np.count_nonzero(self.allowed, axis=(1, 2)) / self.n_customers,
            np.log(self.n_customers) / 5,
        ]
        summary = np.stack(numbers, axis=1)
        return np.asarray(np.clip(summary, -_LARGEST, _LARGEST), np.float32)
