"""Actions of flat vehicle routing."""

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.structured_env import Action
from maze_pl.envs.vehicle_routing.objects import RoutingMazeAction, RoutingMazeState


class ActionConversion(ActionConversionInterface):
    """Actions of one masked choice: the option v * (C + 1) + j sends vehicle v to node j.

    Args:
        max_customers: Maximum number of customers, C.
        n_vehicles: Number of vehicles under way, V; with 1, an option is a node, and 0 is the depot.
    """

    def __init__(self, max_customers: int, n_vehicles: int) -> None:
        self.n_nodes = max_customers + 1
        self.n_vehicles = n_vehicles

    @property
    def action_masks(self) -> Mapping[str, str]:
        """`option_mask` allows what the simulation allows."""
        return {"option": "option_mask"}

    def space(self) -> spaces.Dict:
        """`option`, discrete, of V * (C + 1) options."""
        return spaces.Dict(option=spaces.Discrete(self.n_vehicles * self.n_nodes))

    def space_to_maze(self, action: Action, maze_state: RoutingMazeState) -> RoutingMazeAction:
        """Convert an action to the simulation's action."""
        vehicle, node = divmod(int(action["option"]), self.n_nodes)
        return RoutingMazeAction(vehicle, node)

    def maze_to_space(self, maze_action: RoutingMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        return {"option": maze_action.vehicle * self.n_nodes + maze_action.node}
