"""Independent coins, for MultiBinary heads."""

import math
from typing import Any, Self

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution, drawn


class BernoulliProbabilityDistribution(MaskableProbabilityDistribution):
    """Independent bits: logits [..., n] are log(p / (1 - p)). Actions are int8 [..., *shape], n = prod(shape).

    A masked bit is always 0, with log-probability 0 and entropy 0.
    """

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(number of bits,)."""
        return (math.prod(cls._require(action_space, spaces.MultiBinary).shape),)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] int8 bits."""
        probability = torch.sigmoid(self._masked)
        return self._shaped((drawn(torch.rand, probability, generator) < probability).to(torch.int8))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] int8: 1 where that is more likely than 0."""
        return self._shaped((self._masked > 0).to(torch.int8))

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] sum over the bits of a * l + log(1 - p), l the logit; `action` is [..., *shape]."""
        bits = self._flat(action).to(self._masked.dtype)
        return (bits * self._masked + functional.logsigmoid(-self._masked)).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] sum over the bits of -log(1 - p) - p * l in nats."""
        return -(torch.sigmoid(self._masked) * self._masked + functional.logsigmoid(-self._masked)).sum(dim=-1)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the bits."""
        ours, theirs = self._masked, other._masked
        log_ratio = functional.logsigmoid(-ours) - functional.logsigmoid(-theirs)
        return (torch.sigmoid(ours) * (ours - theirs) + log_ratio).sum(dim=-1)
