"""Base of policies that plan all routes of an instance, then follow them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.node_policy import NodePolicy, nearest_move
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState
from maze_pl.envs.vehicle_routing.solution import Routes, check_routes

_N_KEPT = 1024
"""Number of instances whose routes are kept, above that of episodes at the same time."""


class RoutePolicy(NodePolicy):
    """Plans the routes of an instance once, and follows them, one after the other.

    In a state that is not on these routes, it drives on as far as they allow, else to the nearest
    customer. As the second actor after another policy, it starts a route that no other vehicle is on.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict]) -> None:
        super().__init__(action_spaces_dict)
        self._planned: dict[bytes, Routes] = {}

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
        may_move = state.allowed.any(axis=1)
        is_away = may_move & (state.position > 0)
        vehicle = int((is_away if is_away.any() else may_move).argmax())
        node = self._next_node(state, int(state.position[vehicle]))
        if state.allowed[vehicle, node]:
            return vehicle, node
        return nearest_move(state)

    def _next_node(self, state: RoutingMazeState, position: int) -> int:
        """Next node of a vehicle on its route; from the depot, that of a route without a vehicle."""
        others = set(state.position.tolist()) - {position}
        for route in self._routes_of(state.instance):
            unserved = [customer for customer in route if state.unserved[customer]]
            if position in route:
                following = [customer for customer in unserved if route.index(customer) > route.index(position)]
                return following[0] if following else 0
            if position == 0 and unserved and others.isdisjoint(route):
                return unserved[0]
        return 0

    def _routes_of(self, instance: RoutingInstance) -> Routes:
        """Routes of an instance, planned when they are first needed."""
        if instance.content not in self._planned:
            routes = check_routes(instance, self.plan(instance)).routes
            if len(self._planned) == _N_KEPT:
                del self._planned[next(iter(self._planned))]
            self._planned[instance.content] = routes
        return self._planned[instance.content]
