"""The reward for *mixed* cutting: exchanged in YAML, without touching the simulation."""

from typing import Any

from maze_pl.envs import RewardAggregatorInterface
from maze_pl.envs.cutting_2d import CuttingEvents, InventoryEvents


class WasteRewardAggregator(RewardAggregatorInterface):
    """Minus what was taken into stock, plus what customers got, both as area in raw pieces.

    Customers get the same whatever the agent does, as long as its cuts are valid, so that the best policy is the one
    that needs the fewest raw pieces. But the luck of large and small orders no longer shows in the reward, and returns
    stay small without discounting: over an episode they are minus the area that was wasted or is left.
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
