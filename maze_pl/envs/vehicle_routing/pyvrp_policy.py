"""PyVRP as a policy."""

from __future__ import annotations

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.pyvrp_solver import solve_with_pyvrp
from maze_pl.envs.vehicle_routing.route_policy import RoutePolicy
from maze_pl.envs.vehicle_routing.solution import Routes


class PyVrpPolicy(RoutePolicy):
    """Solves the instance of each episode with PyVRP, then follows the routes.

    Needs the extra `problems`.

    Args:
        action_spaces_dict: Action space of each sub-step.
        time_limit: Seconds for each instance.
        seed: Seed of the solver.
    """

    def __init__(
        self, action_spaces_dict: Mapping[StepKey, spaces.Dict], time_limit: float = 5.0, seed: int = 0
    ) -> None:
        super().__init__(action_spaces_dict)
        self.time_limit = time_limit
        self.seed = seed

    def plan(self, instance: RoutingInstance) -> Routes:
        """Return the routes of an instance."""
        return solve_with_pyvrp(instance, self.time_limit, self.seed).routes
