"""Normal distribution with independent components."""

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.continuous import HALF_LOG_TWO_PI, clipped_normal_log_prob, has_floats
from maze_pl.distributions.probability_distribution import ProbabilityDistribution, drawn


class DiagonalGaussianProbabilityDistribution(ProbabilityDistribution):
    """Independent normal components: logits [..., 2n] are n means, then n log standard deviations.

    Samples are not clipped to the bounds of the Box, but environments receive them so, see
    `environment_log_prob`. Actions are [..., *shape], n = prod(shape). A temperature T multiplies
    the variance by T.

    If gradients flow through the latest sample, its noise is kept, and `log_prob` of that very
    tensor is computed from it: the gradient with respect to the mean is 0 without rounding errors.

    Raises:
        ValueError: A mask was given.
    """

    _latest: tuple[Tensor, Tensor] | None = None  # the latest sampled action, and its noise

    def _prepare(self) -> None:
        self.mean, log_std = self.logits.chunk(2, dim=-1)
        if self.temperature != 1.0:
            log_std = log_std + 0.5 * math.log(self.temperature)
        self.log_std = log_std

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        if not isinstance(action_space, spaces.Box) or not has_floats(action_space):
            raise TypeError(f"{cls.__name__} needs a Box space of floats, got {action_space}")
        return (2 * math.prod(action_space.shape),)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] mean + std * noise; gradients flow through it."""
        noise = drawn(torch.randn, self.mean, generator)
        action = self._shaped(self.mean + self.log_std.exp() * noise)
        self._latest = (action, noise) if action.requires_grad else None
        return action

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the mean."""
        return self._shaped(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape]: sum of -z^2 / 2 - log(std) - log(2 pi) / 2."""
        if self._latest is not None and action is self._latest[0]:
            standardised = self._latest[1]
        else:
            standardised = (self._flat(action).to(self.mean.dtype) - self.mean) * torch.exp(-self.log_std)
        return -(torch.add(self.log_std, standardised.square(), alpha=0.5) + HALF_LOG_TWO_PI).sum(dim=-1)

    def environment_log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape] after clipping.

        See `clipped_normal_log_prob`. Components lie on a bound if they are equal to it as float32, or beyond it.
        """
        space: Any = self.action_space
        bounds = np.stack([space.low, space.high]).astype(np.float32)
        low, high = torch.from_numpy(bounds).to(self.logits.device).reshape(2, -1)
        rounded = self._flat(action).float()
        on_low, on_high = rounded <= low, rounded >= high
        components = self._flat(action).to(self.mean.dtype)
        clipped = torch.clamp(components, low.to(components.dtype), high.to(components.dtype))
        standardised = (clipped - self.mean) * torch.exp(-self.log_std)
        log_density = -0.5 * standardised.square() - self.log_std - HALF_LOG_TWO_PI
        return clipped_normal_log_prob(standardised, log_density, on_low, on_high).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats."""
        return (self.log_std + (0.5 + HALF_LOG_TWO_PI)).sum(dim=-1)

    def kl(self, other: ProbabilityDistribution) -> Tensor:
        """[...] KL(p || q) in nats, in closed form, summed over the components.

            log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1 / 2

        Bounds of the Box have no influence, since samples are not clipped.
        """
        reference = self._comparable(other, DiagonalGaussianProbabilityDistribution)
        log_ratio = self.log_std - reference.log_std
        distance = (self.mean - reference.mean) * torch.exp(-reference.log_std)
        # expm1(2 x) - 2 x does not cancel for small x as exp(2 x) - 1 does
        return 0.5 * (torch.expm1(2.0 * log_ratio) - 2.0 * log_ratio + distance.square()).sum(dim=-1)
