"""Reward for few raw pieces and valid actions."""

from typing import Any

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents


class DefaultRewardAggregator(RewardAggregatorInterface):
    """Penalises the use of raw pieces and invalid actions.

    Args:
        invalid_action_penalty: Reward for choosing an empty slot or a cut that does not fit.
        raw_piece_usage_penalty: Reward for each raw piece put in stock, including the initial one.
    """

    def __init__(self, invalid_action_penalty: float = -2, raw_piece_usage_penalty: float = -1) -> None:
        super().__init__()
        self.invalid_action_penalty, self.raw_piece_usage_penalty = (
            invalid_action_penalty,
            raw_piece_usage_penalty,
        )

    def get_interfaces(self) -> list[type]:
        """Event topics to receive: both topics of the environment."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Sum the penalties of the current step."""
        n_invalid = len(self.query_events((CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut)))
        n_raw_pieces = len(self.query_events(InventoryEvents.piece_replenished))
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty
