"""The nearest neighbour as a policy."""

from __future__ import annotations

from maze_pl.envs.vehicle_routing.node_policy import NodePolicy, nearest_move
from maze_pl.envs.vehicle_routing.objects import RoutingMazeState


class NearestNeighbourPolicy(NodePolicy):
    """Drives to the nearest customer that fits, and back when none fits.

    Args:
        action_spaces_dict: Action space of each sub-step.
    """

    def choose(self, state: RoutingMazeState) -> tuple[int, int]:
        """Return the vehicle under way, or the next one, and the nearest customer.

        Args:
            state: A state in which something may be chosen.
        """
        return nearest_move(state)
