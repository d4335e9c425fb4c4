"""Weighted sum of the rewards of several aggregators."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.events import Pubsub, RewardShareEvents


class WeightedRewardAggregator(RewardAggregatorInterface):
    """Weighted sum of the rewards of several aggregators.

    The share of each aggregator, its reward times its weight, is logged as
    `RewardShareEvents/share/<statistic>/<name>`; the shares of an episode add up to its reward.

        reward_aggregator:
          class_path: maze_pl.envs.WeightedRewardAggregator
          init_args:
            aggregators:
              usage: {class_path: my_project.UsageReward}
              waste: {class_path: my_project.WasteReward}
            weights: {waste: 0.1}

    Args:
        aggregators: Name -> aggregator.
        weights: Name -> weight; 1 for aggregators that are not named.

    Raises:
        ValueError: There are no aggregators, or a weight is not finite or names an unknown one.
    """

    def __init__(
        self,
        aggregators: Mapping[str, RewardAggregatorInterface],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.aggregators = dict(aggregators)
        self.weights = dict.fromkeys(self.aggregators, 1.0) | dict(weights or {})
        finite = all(map(math.isfinite, self.weights.values()))
        if not self.aggregators or set(self.weights) != set(self.aggregators) or not finite:
            raise ValueError(f"weights={weights} must be finite numbers for the aggregators {list(self.aggregators)}")
        self._events: Any = None

    def get_interfaces(self) -> list[type]:
        """Event topics to receive: none, as the parts receive their events themselves."""
        return []

    def join(self, pubsub: Pubsub) -> None:
        """Register the parts as well."""
        super().join(pubsub)
        self._events = pubsub.create_event_topic(RewardShareEvents)
        for aggregator in self.aggregators.values():
            pubsub.register_subscriber(aggregator)

    def summarize_reward(self, maze_state: Any = None) -> float:
        """Return the weighted sum.

        Raises:
            EnvContractError: The reward of an aggregator is not a finite number.
        """
        if self._events is None:
            raise RuntimeError("this aggregator receives no events: call pubsub.register_subscriber with it first")
        total = 0.0
        for name, aggregator in self.aggregators.items():
            reward = aggregator.summarize_reward(maze_state)
            if not isinstance(reward, Real) or not math.isfinite(reward):
                class_name = type(aggregator).__name__
                where = f"the reward of aggregator {name!r} ({class_name})"
                raise EnvContractError(f"{where} is {reward!r}, not a finite number")
            share = self.weights[name] * float(reward)
            self._events.share(name=name, value=share)
            total += share
        return total
