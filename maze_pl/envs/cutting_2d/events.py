"""What happens while cutting, and what is computed of it: statistics, the performance indicator and rewards."""

from typing import Any

import numpy as np

from maze_pl.envs.cutting_2d.demand import Piece
from maze_pl.envs.reward import RewardAggregatorInterface
from maze_pl.events.decorators import EventFunction, define_episode_stats, define_epoch_stats, define_step_stats
from maze_pl.events.kpi import EpisodeEventLog, KpiCalculator


def _counted(event: EventFunction) -> EventFunction:
    """An event of which it is of interest how often it happens in an episode."""
    event = define_episode_stats(sum)(define_step_stats(len)(event))
    return define_epoch_stats(np.mean, output_name="mean_episode_total")(event)


class CuttingEvents:
    """The cutting process."""

    @_counted
    def invalid_piece_selected(self) -> None:
        """There is no piece in the slot that was chosen."""

    @_counted
    def valid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece, cutting_area: float) -> None:
        """An order was cut out of a piece; `cutting_area` is what the customer gets."""

    @_counted
    def invalid_cut(self, current_demand: Piece, piece_to_cut: Piece, raw_piece_size: Piece) -> None:
        """The order does not fit into the chosen piece the way it was turned."""


class InventoryEvents:
    """The stock."""

    @_counted
    def piece_discarded(self, piece: Piece) -> None:
        """The stock was full, and its oldest piece was thrown away."""

    @_counted
    def piece_replenished(self) -> None:
        """A raw piece came into the stock."""

    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value: int) -> None:
        """Number of pieces in stock at the end of a step."""

    @_counted
    def no_piece_fits(self, current_demand: Piece) -> None:
        """No piece in stock can serve the order, which ends the episode where masks leave nothing else to do."""


class Cutting2dKpiCalculator(KpiCalculator):
    """`raw_piece_usage_per_step`: raw pieces put in stock, the one at the start included, for each step."""

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Performance indicators of an episode."""
        n_raw_pieces = len(episode_event_log.query_events(InventoryEvents.piece_replenished))
        return {"raw_piece_usage_per_step": n_raw_pieces / len(episode_event_log.step_event_logs)}


class DefaultRewardAggregator(RewardAggregatorInterface):
    """Penalties for raw pieces and for what cannot be done.

    Args:
        invalid_action_penalty: Reward for choosing an empty slot, or a cut that does not fit.
        raw_piece_usage_penalty: Reward for each raw piece put in stock, the one at the start included.
    """

    def __init__(self, invalid_action_penalty: float = -2, raw_piece_usage_penalty: float = -1) -> None:
        super().__init__()
        self.invalid_action_penalty, self.raw_piece_usage_penalty = invalid_action_penalty, raw_piece_usage_penalty

    def get_interfaces(self) -> list[type]:
        """Both topics of the environment."""
        return [CuttingEvents, InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Sum of the penalties of the current step."""
        n_invalid = len(self.query_events((CuttingEvents.invalid_piece_selected, CuttingEvents.invalid_cut)))
        n_raw_pieces = len(self.query_events(InventoryEvents.piece_replenished))
        return 0.0 + n_invalid * self.invalid_action_penalty + n_raw_pieces * self.raw_piece_usage_penalty


class RawPieceUsageRewardAggregator(DefaultRewardAggregator):
    """Minus the number of raw pieces put in stock; invalid actions cost nothing.

    Args:
        reward_scale: What the number is multiplied by.
    """

    def __init__(self, reward_scale: float) -> None:
        super().__init__(invalid_action_penalty=0, raw_piece_usage_penalty=-reward_scale)


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
