"""Distribution over n options."""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import (
    MaskableProbabilityDistribution,
    log_prob_and_entropy_of,
    sample_index,
)


class CategoricalProbabilityDistribution(MaskableProbabilityDistribution):
    """One of n options: logits are unnormalised log-probabilities [..., n].

    Actions are int64 from the space's start.
    If a mask allows no option, all options are equally likely.
    """

    def _prepare(self) -> None:
        super()._prepare()
        self._start = int(self._require(self.action_space, spaces.Discrete).start)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(n,)."""
        return (int(cls._require(action_space, spaces.Discrete).n),)

    def log_probs_of_options(self) -> Tensor:
        """[..., n] log-probability of every option."""
        return functional.log_softmax(self._masked, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[...] int64 options."""
        index = sample_index(self._masked, generator)
        return index + self._start if self._start else index

    def deterministic_sample(self) -> Tensor:
        """[...] int64, the most likely option."""
        return self._masked.argmax(dim=-1) + self._start

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, whose gradients are computed together."""
        index = action - self._start if self._start else action
        return log_prob_and_entropy_of(self._masked, index)
