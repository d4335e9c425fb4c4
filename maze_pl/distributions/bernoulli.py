"""Independent coins, for MultiBinary heads."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import (
    ProbabilityDistribution,
    check_logits,
    masked_logits,
    uniform,
)


class BernoulliProbabilityDistribution(ProbabilityDistribution):
    """Independent bits: logits [..., n] are log(p / (1 - p)). Actions are int8 [..., *shape], n = prod(shape).

    A masked bit is always 0, with log-probability 0 and entropy 0.
    """

    supports_mask: ClassVar[bool] = True

    def __init__(
        self, logits: Tensor, action_space: spaces.Space[Any], temperature: float = 1.0, mask: Tensor | None = None
    ) -> None:
        super().__init__(logits, action_space, temperature, mask)
        self._shape = _shape(action_space)
        check_logits("BernoulliProbabilityDistribution", logits, math.prod(self._shape))
        scaled = self.logits if temperature == 1.0 else self.logits / temperature
        self._masked = masked_logits(scaled, mask)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(number of bits,)."""
        return (math.prod(_shape(action_space)),)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] int8 bits."""
        probability = torch.sigmoid(self._masked)
        return self._unflatten(uniform(probability, generator) < probability)

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] int8: 1 where that is more likely than 0."""
        return self._unflatten(self._masked > 0)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] sum over the bits of a * l + log(1 - p), l the logit; `action` is [..., *shape]."""
        leading = action.shape[: action.dim() - len(self._shape)]
        bits = action.reshape((*leading, self._masked.shape[-1])).to(self._masked.dtype)
        return (bits * self._masked + functional.logsigmoid(-self._masked)).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] sum over the bits of -log(1 - p) - p * l in nats."""
        return -(torch.sigmoid(self._masked) * self._masked + functional.logsigmoid(-self._masked)).sum(dim=-1)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the bits."""
        ours, theirs = self._masked, other._masked
        log_ratio = functional.logsigmoid(-ours) - functional.logsigmoid(-theirs)
        return (torch.sigmoid(ours) * (ours - theirs) + log_ratio).sum(dim=-1)

    def _unflatten(self, bits: Tensor) -> Tensor:
        action = bits.to(torch.int8)
        return action if len(self._shape) == 1 else action.reshape((*action.shape[:-1], *self._shape))


def _shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    if not isinstance(space, spaces.MultiBinary):
        raise TypeError(f"BernoulliProbabilityDistribution needs a MultiBinary space, got {space}")
    return tuple(space.shape)
