"""The savings algorithm as a policy."""

from __future__ import annotations

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.route_policy import RoutePolicy
from maze_pl.envs.vehicle_routing.savings import savings_routes
from maze_pl.envs.vehicle_routing.solution import Routes


class SavingsPolicy(RoutePolicy):
    """Follows the routes of Clarke and Wright's savings; see `savings_routes`.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def plan(self, instance: RoutingInstance) -> Routes:
        """Return the routes of an instance."""
        return savings_routes(instance).routes
