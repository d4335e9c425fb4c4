"""Base of rewards that are computed from the results of each echelon."""

from __future__ import annotations

from abc import abstractmethod
from math import isfinite
from typing import Any

import numpy as np

from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.multi_echelon_stock.events import StockEvents
from maze_pl.envs.multi_echelon_stock.simulation import PeriodResult, total
from maze_pl.envs.structured_env import Array


class EchelonRewardAggregator(RewardAggregatorInterface):
    """Rewards of each echelon, and of their team, from the results of a period.

    A subclass implements `echelon_rewards`, which serves single episodes and arrays.

    Args:
        scale: Factor of rewards.
        team_share: Share of an echelon's rewards that is divided equally among all echelons: with
            0, each echelon is credited with its own rewards; with 1, with the mean.
        baseline: Cost of a period, such as that of a rule, that rewards are compared with: it is
            added to the reward of each period before it is multiplied, in equal parts for all
            echelons. Episodes have a fixed number of periods, so it changes no decision, but
            returns near 0 are easier to learn.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(self, scale: float = 1.0, team_share: float = 1.0, baseline: float = 0.0) -> None:
        super().__init__()
        if not 0 < scale < float("inf") or not 0 <= team_share <= 1:
            raise ValueError(f"{scale=} must be above 0 and finite, and {team_share=} from 0 to 1")
        self.scale = float(scale)
        self.team_share = float(team_share)
        if not isfinite(baseline):
            raise ValueError(f"{baseline=} must be a finite number")
        self.baseline = float(baseline)

    @abstractmethod
    def echelon_rewards(self, result: PeriodResult) -> Array:
        """Return the rewards [N, E] of N chains, without factor and sharing.

        Args:
            result: Results of a period.
        """

    def get_interfaces(self) -> list[type]:
        """Event topics to receive."""
        return [StockEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the team's reward of the current step, 0 before its end."""
        rewards = self.attributed_rewards()
        return 0.0 if rewards is None else float(self.team_reward(rewards)[0])

    def attributed_rewards(self) -> Array | None:
        """Return the rewards [1, E] of the current step, before sharing; None before its end."""
        result = self._result()
        return None if result is None else self.scaled_rewards(result)

    def scaled_rewards(self, result: PeriodResult) -> Array:
        """Return the rewards [N, E] of N chains, before sharing.

        Args:
            result: Results of a period.
        """
        rewards = self.echelon_rewards(result)
        return np.asarray(self.scale * (rewards + self.baseline / rewards.shape[1]))

    def team_reward(self, rewards: Array) -> Array:
        """Return the sums [N] of rewards [N, E]."""
        return total(rewards)

    def shared(self, rewards: Array) -> Array:
        """Return the rewards [N, E] that actors are credited with.

        Args:
            rewards: [N, E] rewards before sharing.
        """
        mean = self.team_reward(rewards)[:, np.newaxis] / rewards.shape[1]
        return np.asarray((1 - self.team_share) * rewards + self.team_share * mean)

    def _result(self) -> PeriodResult | None:
        """Read the results of the current step from its events."""
        events = list(self.query_events(StockEvents.echelon_period))
        if not events:
            return None
        columns: dict[str, Array] = {}
        for name in ("order", "shipped", "stock", "holding", "shortage", "fixed"):
            columns[name] = np.array([[event.attributes[name] for event in events]])
        (customers,) = self.query_events(StockEvents.customer_demand)
        demand = {name: np.array([value]) for name, value in customers.attributes.items()}
        return PeriodResult(
            orders=columns["order"],
            shipped=columns["shipped"],
            demand=demand["demand"],
            served=demand["served"],
            lost=demand["lost"],
            stock=columns["stock"],
            holding=columns["holding"],
            shortage=columns["shortage"],
            fixed=columns["fixed"],
        )


def checked_aggregator(aggregator: RewardAggregatorInterface) -> EchelonRewardAggregator:
    """Return an aggregator that tells the rewards of echelons.

    Raises:
        TypeError: It does not.
    """
    if not isinstance(aggregator, EchelonRewardAggregator):
        fault = f"{type(aggregator).__name__} does not tell the rewards of echelons"
        remedy = "derive it from EchelonRewardAggregator, or use the flat sequential environment, stock_factory"
        raise TypeError(f"{fault}; {remedy}")
    return aggregator
