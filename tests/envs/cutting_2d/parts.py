"""A user's own parts of the cutting environment, named in configurations by their paths."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d import (
    ActionConversion,
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    Cutting2DMazeState,
    CuttingEvents,
    ObservationConversion,
)


class ServedReward(RewardAggregatorInterface):
    """A reward for each order that is served."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.value = value

    def get_interfaces(self) -> list[type]:
        return [CuttingEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        return self.value * len(self.query_events(CuttingEvents.valid_cut))


class TwoRawPieces(Cutting2DCoreEnvironment):
    """Begins with two raw pieces."""

    def reset(self) -> Cutting2DMazeState:
        super().reset()
        self.inventory.replenish_piece()
        return self.get_maze_state()


class NewestPieceFirst(ActionConversion):
    """Counts pieces from the newest one."""

    def space_to_maze(self, action: Any, maze_state: Cutting2DMazeState) -> Cutting2DMazeAction:
        index = len(maze_state.inventory) - 1 - int(action["piece_idx"])
        return super().space_to_maze({**action, "piece_idx": index}, maze_state)


class WithArea(ObservationConversion):
    """Also shows the area of the order."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({**super().space().spaces, "area": spaces.Box(0, 10_000, (1,), np.float32)})

    def maze_to_space(self, maze_state: Cutting2DMazeState) -> dict[str, np.ndarray]:
        area = np.array([np.prod(maze_state.current_demand)], np.float32)
        return {**super().maze_to_space(maze_state), "area": area}
