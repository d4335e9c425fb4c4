"""Actions of a vehicle."""

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.ride_hailing.objects import N_MOVES, RideHailingMazeAction, RideHailingMazeState
from maze_pl.envs.structured_env import Action


class ActionConversion(ActionConversionInterface):
    """Actions of the vehicle that decides next: one of its K + 5 options, see `RideHailingMazeAction`.

    Args:
        n_nearest: Number of requests that a vehicle may choose from, K.
    """

    def __init__(self, n_nearest: int) -> None:
        self.n_nearest = n_nearest

    @property
    def action_masks(self) -> Mapping[str, str]:
        """`option_mask` allows the options that exist."""
        return {"option": "option_mask"}

    def space(self) -> spaces.Dict:
        """`option`, discrete, of K + 5 options."""
        return spaces.Dict(option=spaces.Discrete(self.n_nearest + N_MOVES))

    def space_to_maze(self, action: Action, maze_state: RideHailingMazeState) -> RideHailingMazeAction:
        """Convert an action to the simulation's action."""
        return RideHailingMazeAction(0, int(action["option"]))

    def maze_to_space(self, maze_action: RideHailingMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        return {"option": maze_action.option}

    def noop_action(self) -> Action:
        """Return the action that stays."""
        return {"option": self.n_nearest}
