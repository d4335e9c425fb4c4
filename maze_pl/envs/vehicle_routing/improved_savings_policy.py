"""The savings algorithm with several route shapes and 2-opt as a policy."""

from __future__ import annotations

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.route_policy import RoutePolicy
from maze_pl.envs.vehicle_routing.savings import improved_savings_routes
from maze_pl.envs.vehicle_routing.solution import Routes


class ImprovedSavingsPolicy(RoutePolicy):
    """Follows the routes of `improved_savings_routes`.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def plan(self, instance: RoutingInstance) -> Routes:
        """Return the routes of an instance."""
        return improved_savings_routes(instance).routes
