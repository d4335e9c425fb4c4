"""Actions of the flat cutting environment."""

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeAction, Cutting2DMazeState
from maze_pl.envs.structured_env import Action


class ActionConversion(ActionConversionInterface):
    """Actions of three choices: the piece, the rotation of the order, and the first cut.

    Args:
        max_pieces_in_inventory: Maximum number of pieces in stock.
    """

    def __init__(self, max_pieces_in_inventory: int) -> None:
        self.max_pieces_in_inventory = max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """`piece_idx`, `cut_rotation` and `cut_order`, all discrete."""
        n = self.max_pieces_in_inventory
        return spaces.Dict(
            piece_idx=spaces.Discrete(n),
            cut_rotation=spaces.Discrete(2),
            cut_order=spaces.Discrete(2),
        )

    def space_to_maze(self, action: Action, maze_state: Cutting2DMazeState) -> Cutting2DMazeAction:
        """Convert an action to the simulation's action."""
        return Cutting2DMazeAction(int(action["piece_idx"]), bool(action["cut_rotation"]), bool(action["cut_order"]))

    def maze_to_space(self, maze_action: Cutting2DMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        rotation, order = int(maze_action.rotate), int(maze_action.reverse_cutting_order)
        return {"piece_idx": maze_action.piece_id, "cut_rotation": rotation, "cut_order": order}
