"""Rewards computed from events, apart from the simulation, so that they can be exchanged without touching it."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any

from maze_pl.envs.contract import EnvContractError
from maze_pl.events.pubsub import Pubsub, Subscriber
from maze_pl.events.topics import RewardShareEvents


class RewardAggregatorInterface(Subscriber):
    """Turns the events of an environment step, and the state after it, into its reward.

    The simulation registers it with its pubsub and asks for the reward once at the end of a step. With one aggregator
    for each agent, it returns what they say from `get_actor_rewards`.
    """

    @abstractmethod
    def summarize_reward(self, maze_state: Any = None) -> float:
        """The reward of the current environment step.

        Args:
            maze_state: State after the step, for rewards that depend on it.
        """


class WeightedRewardAggregator(RewardAggregatorInterface):
    """The weighted sum of what several aggregators say.

    Each one's share, its reward times its weight, is logged as `RewardShareEvents/share/<statistic>/<name>`, so that
    the shares of an episode add up to its reward.

        reward_aggregator:
          class_path: maze_pl.envs.WeightedRewardAggregator
          init_args:
            aggregators:
              usage: {class_path: my_project.UsageReward}
              waste: {class_path: my_project.WasteReward}
            weights: {waste: 0.1}

    Args:
        aggregators: Name -> aggregator.
        weights: Name -> weight; 1 for those that are not named.

    Raises:
        ValueError: There is no aggregator, a weight is for an unknown one, or is not finite.
    """

    def __init__(
        self, aggregators: Mapping[str, RewardAggregatorInterface], weights: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.aggregators = dict(aggregators)
        self.weights = dict.fromkeys(self.aggregators, 1.0) | dict(weights or {})
        finite = all(map(math.isfinite, self.weights.values()))
        if not self.aggregators or set(self.weights) != set(self.aggregators) or not finite:
            raise ValueError(f"weights={weights} must be finite numbers for the aggregators {list(self.aggregators)}")
        self._events: Any = None

    def get_interfaces(self) -> list[type]:
        """None: the parts receive their events themselves."""
        return []

    def join(self, pubsub: Pubsub) -> None:
        """Register the parts, too."""
        super().join(pubsub)
        self._events = pubsub.create_event_topic(RewardShareEvents)
        for aggregator in self.aggregators.values():
            pubsub.register_subscriber(aggregator)

    def summarize_reward(self, maze_state: Any = None) -> float:
        """The weighted sum.

        Raises:
            EnvContractError: An aggregator says something else than a finite number.
        """
        if self._events is None:
            raise RuntimeError("this aggregator receives no events: call pubsub.register_subscriber with it first")
        total = 0.0
        for name, aggregator in self.aggregators.items():
            reward = aggregator.summarize_reward(maze_state)
            if not isinstance(reward, Real) or not math.isfinite(reward):
                kind = type(aggregator).__name__
                raise EnvContractError(f"the reward of aggregator {name!r} ({kind}) is {reward!r}, not a finite number")
            share = self.weights[name] * float(reward)
            self._events.share(name=name, value=share)
            total += share
        return total
