"""Observations of the flat cutting environment."""

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import ObservationConversionInterface
from maze_pl.envs.cutting_2d.objects import Cutting2DMazeState, Piece
from maze_pl.envs.structured_env import Observation


class ObservationConversion(ObservationConversionInterface):
    """Observations: the stock padded with zeros, its size, and the order.

    Args:
        raw_piece_size: Size of a raw piece.
        max_pieces_in_inventory: Maximum number of pieces in stock.
    """

    def __init__(self, raw_piece_size: Piece, max_pieces_in_inventory: int) -> None:
        self.raw_piece_size, self.max_pieces_in_inventory = raw_piece_size, max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """Space of `inventory` [max_pieces_in_inventory, 2], `inventory_size` [1], `ordered_piece` [2].

        All are float32.
        """
        high = np.tile(np.array(self.raw_piece_size, np.float32), (self.max_pieces_in_inventory, 1))
        return spaces.Dict(
            inventory=spaces.Box(np.zeros_like(high), high),
            inventory_size=spaces.Box(0, self.max_pieces_in_inventory, (1,)),
            ordered_piece=spaces.Box(0, max(self.raw_piece_size), (2,)),
        )

    def maze_to_space(self, maze_state: Cutting2DMazeState) -> Observation:
        """Observation of a state."""
        pieces = maze_state.inventory
        inventory = np.zeros((self.max_pieces_in_inventory, 2), np.float32)
        inventory[: len(pieces)] = pieces or 0
        size = np.array([len(pieces)], np.float32)
        order = np.array(maze_state.current_demand, np.float32)
        return {"inventory": inventory, "inventory_size": size, "ordered_piece": order}
