"""The reward for *mixed* cutting, selected in YAML without changing the simulation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maze_pl.envs import RewardAggregatorInterface
from maze_pl.envs.arrays import ArrayEvent
from maze_pl.envs.cutting_2d import CuttingEvents, InventoryEvents


class WasteRewardAggregator(RewardAggregatorInterface):
    """Area delivered to customers minus area taken into stock, both in raw pieces.

    As long as cuts are valid, the delivered area does not depend on the agent, so the best policy is still the one
    that needs the fewest raw pieces. But random order sizes no longer add noise to the reward, and returns stay small
    without discounting: the return of an episode is minus the area that was wasted or is left.
    """

    def get_interfaces(self) -> list[type]:
        """The topics of cutting and stock."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Area served minus raw pieces in the current step."""
        reward = -float(len(self.query_events(InventoryEvents.piece_replenished)))
        for cut in self.query_events(CuttingEvents.valid_cut):
            width, height = cut.attributes["raw_piece_size"]
            reward += cut.attributes["cutting_area"] / (width * height)
        return reward

    def summarize_rewards(self, events: Sequence[ArrayEvent], n_envs: int) -> np.ndarray:
        """Area served minus raw pieces in the current step of each of N environments in arrays: [N] float64."""
        served, n_raw_pieces = np.zeros(n_envs), np.zeros(n_envs)
        for event in events:
            if event.declaration.event is InventoryEvents.piece_replenished:
                n_raw_pieces[event.which] += 1
            elif event.declaration.event is CuttingEvents.valid_cut:
                raw_areas = event.attributes["raw_piece_size"].prod(1, dtype=np.float64)
                served[event.which] += event.attributes["cutting_area"] / raw_areas
        return served - n_raw_pieces
