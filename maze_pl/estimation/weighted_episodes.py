"""Rewards, weights and model values of recorded episodes, as padded arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ModelValues:
    """Values of the evaluated policy by a model, such as fitted Q evaluation.

    Attributes:
        of_acts: [E, L] value of each recorded act; 0 in padding.
        before: [E, L] expected value over the policy's acts in the same situation; 0 in padding.
        tail: [E] discounted expected value of the situation in which a truncated episode ended; 0
            for terminated ones.
    """

    of_acts: Array
    before: Array
    tail: Array


@dataclass(frozen=True)
class WeightedEpisodes:
    """Episodes of a behaviour policy, weighted by the policy that is to be evaluated.

    E episodes of at most L acts; shorter ones are padded at the end with rewards and log-ratios of 0.

    Attributes:
        reward: [E, L] reward after each act.
        discount: [E, L] gamma to the power of the environment steps completed before the act.
        log_ratio: [E, L] log-probability of each act under the evaluated policy minus that under
            the behaviour policy; -inf for acts that the evaluated policy never takes.
        values: Values by a model, for doubly robust estimators.
    """

    reward: Array
    discount: Array
    log_ratio: Array
    values: ModelValues | None = None

    @property
    def n_episodes(self) -> int:
        """Number of episodes, E."""
        return len(self.reward)

    @property
    def returns(self) -> Array:
        """[E] discounted sum of the rewards of each episode."""
        total: Array = (self.discount * self.reward).sum(1)
        return total

    @property
    def log_weights(self) -> Array:
        """[E, L] log of the product of the ratios of all acts up to each act."""
        cumulated: Array = np.cumsum(self.log_ratio, axis=1)
        return cumulated
