"""The joint distribution of all heads of a sub-step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

import torch
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution


class DictProbabilityDistribution:
    """Independent distributions by head: actions are dicts, log-probabilities and entropies are sums over the heads.

    Args:
        distributions: Head -> distribution, all with the same leading dimensions.

    Raises:
        ValueError: There is no head.
    """

    def __init__(self, distributions: Mapping[str, ProbabilityDistribution]) -> None:
        if not distributions:
            raise ValueError("a joint distribution needs at least one head")
        self.distributions = dict(distributions)

    def sample(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Draw one action for each batch entry, head by head; see `ProbabilityDistribution.sample`."""
        return {head: distribution.sample(generator) for head, distribution in self.distributions.items()}

    def deterministic_sample(self) -> dict[str, Tensor]:
        """The mode of each head."""
        return {head: distribution.deterministic_sample() for head, distribution in self.distributions.items()}

    def log_prob(self, action: Mapping[str, Tensor]) -> Tensor:
        """[...] log-probability of the whole action, the sum over its heads."""
        return reduce(add, [self.distributions[head].log_prob(action[head]) for head in self.distributions])

    def entropy(self) -> Tensor:
        """[...] sum of the entropies of all heads in nats."""
        return reduce(add, [distribution.entropy() for distribution in self.distributions.values()])

    def log_prob_and_entropy(self, action: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, sharing what both need."""
        terms = [item.log_prob_and_entropy(action[head]) for head, item in self.distributions.items()]
        return reduce(add, [log_prob for log_prob, _ in terms]), reduce(add, [entropy for _, entropy in terms])

    def kl(self, other: DictProbabilityDistribution) -> Tensor:
        """[...] KL(self || other) in nats, the sum over the heads."""
        return reduce(add, [item.kl(other.distributions[head]) for head, item in self.distributions.items()])
