"""Reward for few raw pieces."""

from maze_pl.envs.cutting_2d.default_reward_aggregator import DefaultRewardAggregator


class RawPieceUsageRewardAggregator(DefaultRewardAggregator):
    """Penalises each raw piece put in stock; invalid actions cost nothing.

    Args:
        reward_scale: Factor for the number of raw pieces.
    """

    def __init__(self, reward_scale: float) -> None:
        super().__init__(invalid_action_penalty=0, raw_piece_usage_penalty=-reward_scale)
