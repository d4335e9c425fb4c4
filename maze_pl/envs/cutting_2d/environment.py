"""The flat cutting environment: piece and cuts are chosen together."""

from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface
from maze_pl.envs.cutting_2d.action_conversion import ActionConversion
from maze_pl.envs.cutting_2d.core_environment import Cutting2DCoreEnvironment
from maze_pl.envs.cutting_2d.demand import Demand
from maze_pl.envs.cutting_2d.objects import Piece
from maze_pl.envs.cutting_2d.observation_conversion import ObservationConversion
from maze_pl.envs.maze_env import MazeEnv


class Cutting2DEnvironment(MazeEnv):
    """The cutting problem with one actor.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    heuristic_policy = "maze_pl.envs.cutting_2d.GreedyCuttingPolicy"

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
        max_pieces_in_inventory: Maximum number of pieces in stock.
        raw_piece_size: Size of a raw piece.
        static_demand: The piece that is always ordered, several pieces that are ordered in a cycle,
            or a generator of other orders.
    """
    core_env = Cutting2DCoreEnvironment(max_pieces_in_inventory, raw_piece_size, static_demand)
    observation_conversion = ObservationConversion(raw_piece_size, max_pieces_in_inventory)
    return Cutting2DEnvironment(core_env, ActionConversion(max_pieces_in_inventory), observation_conversion)
