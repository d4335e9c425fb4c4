"""The flat environment: conversions between the simulation's objects and arrays; piece and cuts are chosen at once."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from maze_pl.envs.conversions import ActionConversionInterface, ObservationConversionInterface
from maze_pl.envs.core_env import CoreEnv
from maze_pl.envs.cutting_2d.core_env import Cutting2DCoreEnvironment, Cutting2DMazeAction, Cutting2DMazeState
from maze_pl.envs.cutting_2d.demand import Demand, Piece
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, Observation


class ObservationConversion(ObservationConversionInterface):
    """The stock, padded with zeros, its size and the order.

    Args:
        raw_piece_size: Size of a raw piece.
        max_pieces_in_inventory: How many pieces there is room for.
    """

    def __init__(self, raw_piece_size: Piece, max_pieces_in_inventory: int) -> None:
        self.raw_piece_size, self.max_pieces_in_inventory = raw_piece_size, max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """`inventory` [max_pieces_in_inventory, 2], `inventory_size` [1] and `ordered_piece` [2], all float32."""
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
        size, order = np.array([len(pieces)], np.float32), np.array(maze_state.current_demand, np.float32)
        return {"inventory": inventory, "inventory_size": size, "ordered_piece": order}


class ActionConversion(ActionConversionInterface):
    """Three choices: the piece, whether to turn the order, and which cut comes first.

    Args:
        max_pieces_in_inventory: How many pieces there is room for.
    """

    def __init__(self, max_pieces_in_inventory: int) -> None:
        self.max_pieces_in_inventory = max_pieces_in_inventory

    def space(self) -> spaces.Dict:
        """`piece_idx`, `cut_rotation` and `cut_order`, all discrete."""
        n = self.max_pieces_in_inventory
        return spaces.Dict(piece_idx=spaces.Discrete(n), cut_rotation=spaces.Discrete(2), cut_order=spaces.Discrete(2))

    def space_to_maze(self, action: Action, maze_state: Cutting2DMazeState) -> Cutting2DMazeAction:
        """The simulation's form of an action."""
        return Cutting2DMazeAction(int(action["piece_idx"]), bool(action["cut_rotation"]), bool(action["cut_order"]))

    def maze_to_space(self, maze_action: Cutting2DMazeAction) -> Action:
        """The agent's form of the simulation's action."""
        rotation, order = int(maze_action.rotate), int(maze_action.reverse_cutting_order)
        return {"piece_idx": maze_action.piece_id, "cut_rotation": rotation, "cut_order": order}


class Cutting2DEnvironment(MazeEnv):
    """The cutting problem with one actor.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion: ActionConversionInterface,
        observation_conversion: ObservationConversionInterface,
    ) -> None:
        super().__init__(core_env, {0: action_conversion}, {0: observation_conversion})


def maze_env_factory(max_pieces_in_inventory: int, raw_piece_size: Piece, static_demand: Demand) -> MazeEnv:
    """Make the flat environment.

    Args:
        max_pieces_in_inventory: How many pieces there is room for.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several that follow one another in a cycle, or a generator of
            other orders.
    """
    return Cutting2DEnvironment(
        Cutting2DCoreEnvironment(max_pieces_in_inventory, raw_piece_size, static_demand),
        ActionConversion(max_pieces_in_inventory),
        ObservationConversion(raw_piece_size, max_pieces_in_inventory),
    )
