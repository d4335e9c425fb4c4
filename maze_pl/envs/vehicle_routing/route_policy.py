"""Base of policies that plan all routes of an instance, then follow them."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.node_policy import NodePolicy, nearest_move
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.solution import Routes, check_routes

_N_KEPT = 64
"""Number of instances whose routes are kept."""


class RoutePolicy(NodePolicy):
    """Plans the routes of an instance once, and follows them, one after the other.

    In a state that is not on these routes, it drives on as far as they allow, else to the nearest customer.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    _planned: tuple[tuple[RoutingInstance, Routes], ...] = ()

    @abstractmethod
    def plan(self, instance: RoutingInstance) -> Routes:
        """Return routes that serve all customers.

        Args:
            instance: The instance.
        """

    def choose(self, state: RoutingMazeState) -> tuple[int, int]:
        """Return the vehicle under way, or the next one, and its next node.

        Args:
            state: A state in which something may be chosen.
        """
        away = np.flatnonzero(state.position > 0)
        vehicle = int(away[0]) if len(away) else 0
        node = self._next_node(state, int(state.position[vehicle]))
        if state.allowed[vehicle, node]:
            return vehicle, node
        return nearest_move(state)

    def _next_node(self, state: RoutingMazeState, position: int) -> int:
        """Next node of a vehicle on its route."""
        for route in self._routes_of(state.instance):
            unserved = [customer for customer in route if state.unserved[customer]]
            if position in route:
                following = [customer for customer in unserved if route.index(customer) > route.index(position)]
                return following[0] if following else 0
            if position == 0 and unserved:
                return unserved[0]
        return 0

    def _routes_of(self, instance: RoutingInstance) -> Routes:
        """Routes of an instance, planned when they are first needed."""
        for known, routes in self._planned:
            if known is instance:
                return routes
        routes = check_routes(instance, self.plan(instance)).routes
        self._planned = (*self._planned[1 - _N_KEPT :], (instance, routes))
        return routes
