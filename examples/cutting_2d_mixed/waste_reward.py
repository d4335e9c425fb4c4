"""The reward for *mixed* cutting, selected in YAML without changing the simulation."""

from typing import Any

from maze_pl.envs import RewardAggregatorInterface
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
