"""The normal distribution with independent components, for unbounded Box heads."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution, check_logits, standard_normal

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class DiagonalGaussianProbabilityDistribution(ProbabilityDistribution):
    """Independent normal components: logits [..., 2n] are the n means and then the n logarithms of the deviations.

    Samples are not clipped to the bounds of the Box. Actions are [..., *shape], n = prod(shape). A temperature T
    multiplies the variance by T.

    Raises:
        ValueError: A mask was given.
    """

    def __init__(
        self, logits: Tensor, action_space: spaces.Space[Any], temperature: float = 1.0, mask: Tensor | None = None
    ) -> None:
        super().__init__(logits, action_space, temperature, mask)
        self._shape = _shape(action_space)
        check_logits("DiagonalGaussianProbabilityDistribution", logits, 2 * math.prod(self._shape))
        self.mean, log_std = self.logits.chunk(2, dim=-1)
        self.log_std = log_std if temperature == 1.0 else log_std + 0.5 * math.log(temperature)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        return (2 * math.prod(_shape(action_space)),)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] mean + std * noise; gradients flow through it."""
        return self._unflatten(self.mean + self.log_std.exp() * standard_normal(self.mean, generator))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the mean."""
        return self._unflatten(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape]: the sum of -z^2 / 2 - log(std) - log(2 pi) / 2."""
        leading = action.shape[: action.dim() - len(self._shape)]
        standardised = (action.reshape((*leading, self.mean.shape[-1])) - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * standardised.square() - self.log_std - _HALF_LOG_TWO_PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats."""
        return (self.log_std + (0.5 + _HALF_LOG_TWO_PI)).sum(dim=-1)

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the components."""
        log_ratio = self.log_std - other.log_std
        distance = (self.mean - other.mean) * torch.exp(-other.log_std)
        return (0.5 * (torch.exp(2.0 * log_ratio) + distance.square() - 1.0) - log_ratio).sum(dim=-1)

    def _unflatten(self, action: Tensor) -> Tensor:
        return action if len(self._shape) == 1 else action.reshape((*action.shape[:-1], *self._shape))


def _shape(space: spaces.Space[Any]) -> tuple[int, ...]:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise TypeError(f"DiagonalGaussianProbabilityDistribution needs a Box space of floats, got {space}")
    return tuple(space.shape)
