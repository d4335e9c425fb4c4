"""Actions of a central dispatcher."""

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.ride_hailing.objects import N_MOVES, RideHailingMazeAction, RideHailingMazeState
from maze_pl.envs.structured_env import Action


class CentralActionConversion(ActionConversionInterface):
    """Actions of one masked choice: i (K + 5) + o, option o of the i-th vehicle that has to decide.

    Args:
        max_vehicles: Maximum number of vehicles that decide at a time, M; later ones wait.
        n_nearest: Number of requests that a vehicle may choose from, K.
    """

    def __init__(self, max_vehicles: int, n_nearest: int) -> None:
        self.max_vehicles = max_vehicles
        self.n_options = n_nearest + N_MOVES

    @property
    def action_masks(self) -> Mapping[str, str]:
        """`option_mask` allows the options that exist."""
        return {"pair": "option_mask"}

    def space(self) -> spaces.Dict:
        """`pair`, discrete, of M (K + 5) options."""
        return spaces.Dict(pair=spaces.Discrete(self.max_vehicles * self.n_options))

    def space_to_maze(self, action: Action, maze_state: RideHailingMazeState) -> RideHailingMazeAction:
        """Convert an action to the simulation's action."""
        place, option = divmod(int(action["pair"]), self.n_options)
        return RideHailingMazeAction(place, option)

    def maze_to_space(self, maze_action: RideHailingMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        return {"pair": maze_action.place * self.n_options + maze_action.option}
