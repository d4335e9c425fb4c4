"""Joint distribution of several action heads."""

from collections.abc import Mapping
from functools import reduce
from operator import add

import torch
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution


class DictProbabilityDistribution:
    """Independent distributions by head.

    Actions are dicts; log-probabilities and entropies are sums over the heads.

    Args:
        distributions: Head -> distribution, at least one, all with the same leading dimensions.

    Raises:
        ValueError: There is no distribution.
    """

    def __init__(self, distributions: Mapping[str, ProbabilityDistribution]) -> None:
        if not distributions:
            reason = "there is no action to choose"
            raise ValueError(f"a joint distribution needs at least one head: {reason}")
        self.distributions = dict(distributions)

    def sample(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Draw one action for each batch entry; see `ProbabilityDistribution.sample`."""
        return {head: part.sample(generator) for head, part in self.distributions.items()}

    def deterministic_sample(self) -> dict[str, Tensor]:
        """The mode of each head."""
        return {head: part.deterministic_sample() for head, part in self.distributions.items()}

    def log_prob(self, action: Mapping[str, Tensor]) -> Tensor:
        """[...] log-probability of the whole action, the sum over its heads."""
        terms = [part.log_prob(action[head]) for head, part in self.distributions.items()]
        return reduce(add, terms)

    def environment_log_prob(self, action: Mapping[str, Tensor]) -> Tensor:
        """[...] log-probability of the whole action as environments receive it, by heads."""
        terms = [part.environment_log_prob(action[head]) for head, part in self.distributions.items()]
        return reduce(add, terms)

    def entropy(self) -> Tensor:
        """[...] sum of the entropies of all heads in nats."""
        return reduce(add, [distribution.entropy() for distribution in self.distributions.values()])

    def log_prob_and_entropy(self, action: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, with shared computations."""
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        for head, part in self.distributions.items():
            log_prob, entropy = part.log_prob_and_entropy(action[head])
            log_probs.append(log_prob)
            entropies.append(entropy)
        return reduce(add, log_probs), reduce(add, entropies)

    def kl(self, other: "DictProbabilityDistribution") -> Tensor:
        """[...] KL(self || other) in nats: the sum over the independent heads.

        Args:
            other: A joint distribution of the same heads; see `ProbabilityDistribution.kl`.

        Raises:
            ValueError: The heads differ, or a head has another space.
            TypeError: The distributions of a head are of different kinds.
            NotImplementedError: A custom distribution has no `kl`.
        """
        if other.distributions.keys() != self.distributions.keys():
            heads_of_both = f"got {list(self.distributions)} and {list(other.distributions)}"
            raise ValueError(f"kl needs two joint distributions of the same heads, {heads_of_both}")
        return reduce(add, [part.kl(other.distributions[head]) for head, part in self.distributions.items()])
