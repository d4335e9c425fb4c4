"""Reward for few raw pieces and valid actions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_events import ArrayEvent
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.cutting_2d.events import CuttingEvents, InventoryEvents
from maze_pl.envs.structured_env import Array


class DefaultRewardAggregator(RewardAggregatorInterface):
    """Penalises the use of raw pieces and invalid actions.

    Args:
        invalid_action_penalty: Reward for choosing an empty slot or a cut that does not fit.
        raw_piece_usage_penalty: Reward for each raw piece put in stock, including the initial one.
    """

    def __init__(self, invalid_action_penalty: float = -2, raw_piece_usage_penalty: float = -1) -> None:
        super().__init__()
        self.invalid_action_penalty = invalid_action_penalty
        self.raw_piece_usage_penalty = raw_piece_usage_penalty

    def get_interfaces(self) -> list[type]:
        """Event topics to receive: both topics of the environment."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Sum the penalties of the current step."""
        n_invalid = len(self.query_events((CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut)))
        n_raw_pieces = len(self.query_events(InventoryEvents.piece_replenished))
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty

    def summarize_rewards(self, events: Sequence[ArrayEvent], n_envs: int) -> Array:
        """Sum the penalties of the current step in each of N environments in arrays.

        Args:
            events: Events of the step, at most one in each environment.
            n_envs: Number of environments N.

        Returns:
            [N] float64.
        """
        n_invalid = np.zeros(n_envs, np.int64)
        n_raw_pieces = np.zeros(n_envs, np.int64)
        for event in events:
            kind = event.declaration.event
            if kind in (CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut):
                n_invalid[event.which] += 1
            elif kind is InventoryEvents.piece_replenished:
                n_raw_pieces[event.which] += 1
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty
