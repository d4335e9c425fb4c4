"""Vehicles that serve customers, in many episodes at once, on preallocated arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maze_pl.envs.vehicle_routing.instance import Array, InstanceArrays
from maze_pl.envs.vehicle_routing.savings import ROUTE_SHAPES, Savings


@dataclass(frozen=True, slots=True, eq=False)
class MoveResult:
    """Results of one move in each of n episodes.

    Attributes:
        is_valid: [n] whether the choice was allowed.
        vehicle: [n] the vehicle that moved.
        node: [n] where it went; 0 is the depot.
        distance: [n] distance of this move.
        returns: [n, V] distances of the vehicles that returned to the depot, the one that chose to
            included; NaN for others.
        loads: [n, V] share of the capacity that these vehicles have delivered.
        total: [n] distance of the move and of all returns.
        is_complete: [n] whether all customers are served and all vehicles are at the depot.
    """

    is_valid: Array
    vehicle: Array
    node: Array
    distance: Array
    returns: Array
    loads: Array
    total: Array
    is_complete: Array


class RoutingSimulation:
    """N episodes of the capacitated vehicle routing problem, with V vehicles under way at most.

    A move takes a vehicle to a customer, whose whole demand it delivers, or back to the depot,
    where a new vehicle of full capacity takes its place. A vehicle that can serve no other customer
    returns by itself, so that a vehicle under way always has a choice, and so do all vehicles when
    the last customer is served. With C customers, an episode has from C to 2 C moves.

    Each vehicle may go to unserved customers whose demand does not exceed its remaining capacity,
    and to the depot unless it is there. All vehicles at the depot are the same: only the first
    of them has choices.

    With one vehicle, routes are driven one after the other, as in Kool et al. 2019
    (arXiv:1803.08475); with several, they grow together. Any set of routes can be driven.

    Args:
        n_envs: N.
        max_customers: C.
        n_vehicles: V.
        is_advised: Whether routes are planned, as by `improved_savings_routes`: at the start,
            whenever a vehicle returns to the depot and, with the route shape of the last plan, when one leaves them.

    Attributes:
        instances: The instances.
        position: [N, V] node of each vehicle.
        remaining: [N, V] its remaining capacity.
        unserved: [N, C + 1] customers that are not served yet.
        allowed: [N, V, C + 1] moves that may be chosen.
        length: [N] distance so far.
        n_routes: [N] number of vehicles that have returned.
        n_moves: [N] number of moves, returns included.
        links: [N, C + 1, 2] nodes before and after each customer in planned routes, and after the
            place of each vehicle; -1 without.
        route_of: [N, C + 1] number of the planned route of each of these; -1 without.
        shape: [N] route shape of the planned routes.
        move_vehicles: [N, 2 C] vehicle of each move.
        move_nodes: [N, 2 C] node of each move.
    """

    def __init__(self, n_envs: int, max_customers: int, n_vehicles: int, is_advised: bool = False) -> None:
        n_nodes = max_customers + 1
        self.max_customers = max_customers
        self.n_vehicles = n_vehicles
        self.is_advised = is_advised
        self.instances = InstanceArrays.empty(n_envs, max_customers)
        self.position = np.zeros((n_envs, n_vehicles), np.int64)
        self.remaining = np.zeros((n_envs, n_vehicles), np.int64)
        self.unserved = np.zeros((n_envs, n_nodes), np.bool_)
        self.allowed = np.zeros((n_envs, n_vehicles, n_nodes), np.bool_)
        self.length = np.zeros(n_envs)
        self.n_routes = np.zeros(n_envs, np.int64)
        self.n_moves = np.zeros(n_envs, np.int64)
        self.links = np.full((n_envs, n_nodes, 2), -1, np.int16)
        self.route_of = np.full((n_envs, n_nodes), -1, np.int16)
        self.shape = np.ones(n_envs)
        self.move_vehicles = np.zeros((n_envs, 2 * max_customers), np.int16)
        self.move_nodes = np.zeros((n_envs, 2 * max_customers), np.int16)

    def reset(self, which: Array, instances: InstanceArrays) -> None:
        """Start episodes with all vehicles at the depot.

        Args:
            which: [n] numbers of the episodes.
            instances: Their instances.
        """
        self.instances.put(which, instances)
        numbers = np.arange(self.max_customers + 1)
        self.unserved[which] = (numbers > 0) & (numbers <= instances.n_customers[:, np.newaxis])
        self.position[which] = 0
        self.remaining[which] = instances.capacity[:, np.newaxis]
        self.length[which] = 0.0
        self.n_routes[which] = 0
        self.n_moves[which] = 0
        self._update(which)
        if self.is_advised:
            for env in which.tolist():
                self._plan(env, ROUTE_SHAPES)

    def move(self, which: Array, vehicle: Array, node: Array) -> MoveResult:
        """Move a vehicle in some episodes; a choice that is not allowed is replaced by the nearest allowed customer.

        Args:
            which: [n] numbers of the episodes, none of which is complete.
            vehicle: [n] the vehicles.
            node: [n] where they go.
        """
        vehicle, node, is_valid = self._replaced(which, vehicle, node)
        origin = self.position[which, vehicle]
        distance = self.instances.distances[which, origin, node]
        self.position[which, vehicle] = node
        self.remaining[which, vehicle] -= self.instances.demands[which, node]
        self.unserved[which, node] = False
        self._note(which, vehicle, node)
        returns = np.full((len(which), self.n_vehicles), np.nan)
        loads = np.zeros((len(which), self.n_vehicles))
        is_return = node == 0
        closing = np.flatnonzero(is_return)
        loads[closing, vehicle[closing]] = self._refill(which[closing], vehicle[closing])
        returns[closing, vehicle[closing]] = distance[closing]
        total = distance.copy()
        self._return_idle(which, returns, loads, total)
        self.length[which] += total
        self._update(which)
        if self.is_advised:
            self._follow(which, vehicle, origin, node, ~np.isnan(returns).all(axis=1))
        is_complete = np.logical_not(self.unserved[which].any(axis=1))
        return MoveResult(
            is_valid=is_valid,
            vehicle=vehicle,
            node=node,
            distance=distance,
            returns=returns,
            loads=loads,
            total=total,
            is_complete=is_complete,
        )

    def _replaced(self, which: Array, vehicle: Array, node: Array) -> tuple[Array, Array, Array]:
        """Return the vehicle and the node of each move, and whether they were the chosen ones."""
        is_inside = (vehicle >= 0) & (vehicle < self.n_vehicles) & (node >= 0) & (node <= self.max_customers)
        vehicle = np.where(is_inside, vehicle, 0)
        node = np.where(is_inside, node, 0)
        is_valid = is_inside & self.allowed[which, vehicle, node]
        for place in np.flatnonzero(~is_valid).tolist():
            env = which[place]
            distances = self.instances.distances[env, self.position[env]]
            allowed = self.allowed[env].copy()
            allowed[:, 0] = False
            best = int(np.where(allowed, distances, np.inf).argmin())
            vehicle[place], node[place] = divmod(best, self.max_customers + 1)
        return vehicle, node, is_valid

    def _return_idle(self, which: Array, returns: Array, loads: Array, total: Array) -> None:
        """Return vehicles that can serve nothing; adds to the results of the move."""
        position = self.position[which]
        fits = self._fits(which).any(axis=2)
        leaves = (position > 0) & ~fits
        for vehicle in range(self.n_vehicles):
            places = np.flatnonzero(leaves[:, vehicle])
            if len(places) == 0:
                continue
            envs = which[places]
            vehicles = np.full(len(places), vehicle)
            distance = self.instances.distances[envs, position[places, vehicle], 0]
            self._note(envs, vehicles, np.zeros(len(places), np.int64))
            loads[places, vehicle] = self._refill(envs, vehicles)
            self.position[envs, vehicle] = 0
            returns[places, vehicle] = distance
            total[places] += distance

    def _refill(self, which: Array, vehicle: Array) -> Array:
        """Give vehicles at the depot their capacity back; returns the share that they have delivered."""
        capacity = self.instances.capacity[which]
        load = 1.0 - self.remaining[which, vehicle] / capacity
        self.remaining[which, vehicle] = capacity
        self.n_routes[which] += 1
        return np.asarray(load)

    def _note(self, which: Array, vehicle: Array, node: Array) -> None:
        """Write down moves."""
        self.move_vehicles[which, self.n_moves[which]] = vehicle
        self.move_nodes[which, self.n_moves[which]] = node
        self.n_moves[which] += 1

    def _fits(self, which: Array) -> Array:
        """[n, V, C + 1] unserved customers that each vehicle can serve."""
        demands = self.instances.demands[which][:, np.newaxis]
        fits = demands <= self.remaining[which][..., np.newaxis]
        return np.asarray(fits & self.unserved[which][:, np.newaxis])

    def _follow(self, which: Array, vehicle: Array, origin: Array, node: Array, is_return: Array) -> None:
        """Note moves that follow the planned routes, and plan again after others and after returns to the depot."""
        others = self.position[which]
        others[np.arange(len(which)), vehicle] = 0
        is_of_other = in_begun_routes(self.route_of[which], others)[np.arange(len(which)), node]
        arrives = self.links[which, node] == origin[:, np.newaxis]  # [n, 2]
        leaves = self.links[which, origin] == node[:, np.newaxis]
        is_first = arrives & (np.cumsum(arrives, axis=1) == 1)
        links = self.links[which, node]
        links[is_first & (node > 0)[:, np.newaxis]] = -1  # the vehicle does not go back there
        self.links[which, node] = links
        follows = (arrives & (node > 0)[:, np.newaxis]).any(axis=1) | leaves.any(axis=1)
        follows &= (origin > 0) | ~is_of_other
        for env in which[is_return].tolist():
            self._plan(env, ROUTE_SHAPES)
        for env in which[~(follows | is_return)].tolist():
            self._plan(env, [self.shape[env]])

    def _plan(self, env: int, shapes: Sequence[float]) -> None:
        """Plan the routes to all unserved customers with the best of some shapes."""
        instances = self.instances
        self.links[env] = -1
        self.route_of[env] = -1
        begun = {}
        for place, remaining in zip(self.position[env].tolist(), self.remaining[env].tolist(), strict=True):
            if place:
                begun[place] = remaining
        customers = np.flatnonzero(self.unserved[env])
        capacity = int(instances.capacity[env])
        savings = Savings(instances.distances[env], instances.demands[env], capacity, customers, begun)
        routes, self.shape[env] = savings.improved_routes(shapes)
        for number, route in enumerate(routes):
            stops = np.array([-1 if route[0] in begun else 0, *route, 0])
            self.links[env, route, 0] = stops[:-2]
            self.links[env, route, 1] = stops[2:]
            self.route_of[env, route] = number

    def _update(self, which: Array) -> None:
        """Compute the allowed moves."""
        fits = self._fits(which)
        is_away = self.position[which] > 0
        fits[:, :, 0] = is_away
        if self.n_vehicles > 1:
            is_first = np.cumsum(~is_away, axis=1) == 1
            fits &= (is_away | is_first)[..., np.newaxis]
        self.allowed[which] = fits

    def routes(self, env: int) -> list[list[int]]:
        """Customers of each route of an episode, in the order in which vehicles left the depot."""
        return routes_of(self.move_vehicles[env], self.move_nodes[env], int(self.n_moves[env]))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays of the state [N, ...], by name."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                yield name, value
        for name, value in vars(self.instances).items():
            yield f"instances_{name}", value


def in_begun_routes(route_of: Array, position: Array) -> Array:
    """Return whether each node is in the planned route of a vehicle under way, [n, C + 1].

    Args:
        route_of: [n, C + 1] number of the planned route of each node; -1 without.
        position: [n, V] node of each vehicle.
    """
    begun = np.where(position > 0, np.take_along_axis(route_of, position, axis=1), -2)
    return np.asarray((route_of[:, np.newaxis] == begun[..., np.newaxis]).any(axis=1))


def routes_of(vehicles: Array, nodes: Array, n_moves: int) -> list[list[int]]:
    """Customers of each route, in the order in which vehicles left the depot.

    Args:
        vehicles: [M] vehicle of each move.
        nodes: [M] node of each move.
        n_moves: Number of moves so far, at most M.

    Example:
        >>> routes_of(np.array([0, 1, 0, 0, 1]), np.array([3, 1, 2, 0, 0]), 5)
        [[3, 2], [1]]
    """
    routes: list[list[int]] = []
    running: dict[int, list[int]] = {}
    for vehicle, node in zip(vehicles[:n_moves].tolist(), nodes[:n_moves].tolist(), strict=True):
        if node == 0:
            running.pop(vehicle, None)
            continue
        if vehicle not in running:
            running[vehicle] = []
            routes.append(running[vehicle])
        running[vehicle].append(node)
    return routes
