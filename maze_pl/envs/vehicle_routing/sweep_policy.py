"""The sweep as a policy."""

from __future__ import annotations

from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.route_policy import RoutePolicy
from maze_pl.envs.vehicle_routing.solution import Routes
from maze_pl.envs.vehicle_routing.sweep import sweep_routes


class SweepPolicy(RoutePolicy):
    """Follows the routes of Gillett and Miller's sweep; see `sweep_routes`.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def plan(self, instance: RoutingInstance) -> Routes:
        """Return the routes of an instance."""
        return sweep_routes(instance).routes
