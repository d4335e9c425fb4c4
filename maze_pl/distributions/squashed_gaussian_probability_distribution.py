"""Normal distribution squashed into bounded boxes."""

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.continuous import (
    HALF_LOG_TWO_PI,
    BoundedProbabilityDistribution,
    clipped_normal_log_prob,
)
from maze_pl.distributions.diagonal_gaussian_probability_distribution import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution

# Mixture of normals for the logistic distribution with density sech(y)^2 / 2.
_SCALES = (
    0.38375647725,
    0.522913009794,
    0.719706434235,
    1.005737704013,
    1.403178821064,
    1.943589065356,
)


_WEIGHTS = (
    0.007484715142,
    0.131302829735,
    0.397856723794,
    0.357674817979,
    0.100420870223,
    0.005260043126,
)


@functools.cache  # never dropped, as graphs of a device read the tensors at their addresses
def _quadrature(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the scales [6] and weights [6] of the mixture, copied to a device only once."""
    with torch.inference_mode(False):
        scales, weights = torch.tensor((_SCALES, _WEIGHTS), dtype=dtype, device=device).unbind()
    return scales, weights


class SquashedGaussianProbabilityDistribution(BoundedProbabilityDistribution):
    """Tanh-squashed normal components: actions low + (high - low) * (1 + tanh(x)) / 2 for normal x.

    Logits [..., 2n] are n means, then n log standard deviations of x; a temperature T
    multiplies the variance of x by T. See `BoundedProbabilityDistribution` for actions and bounds.
    Haarnoja et al. 2018, arXiv:1801.01290, appendix C.

    If gradients flow through the latest sample, its x is kept: `log_prob` of that very tensor and
    its gradient are exact even if rounding has put the action on a bound.

    Raises:
        ValueError: A mask was given.

    Example:
        >>> from gymnasium import spaces
        >>> logits, space = torch.tensor([30.0, 0.0]), spaces.Box(-2.0, 2.0, (1,))
        >>> SquashedGaussianProbabilityDistribution(logits, space).deterministic_sample()
        tensor([2.])
    """

    _latest: tuple[Tensor, Tensor] | None = None  # the latest sampled action, and its x

    @functools.cached_property
    def _normal(self) -> DiagonalGaussianProbabilityDistribution:
        space = self.action_space
        return DiagonalGaussianProbabilityDistribution(self.logits, space, self.temperature)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] actions; gradients flow through them."""
        x = self._normal.sample(generator)
        action = self._squashed(x)
        self._latest = (action, x) if x.requires_grad else None
        return action

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the median: the squashed mean of x."""
        return self._squashed(self._normal.deterministic_sample())

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape]: log p(x) - sum log |d action / dx|."""
        if self._latest is not None and action is self._latest[0]:
            x = self._latest[1]
        else:
            x = -0.5 * self._log_fraction(action).diff(dim=-1).squeeze(-1)
        log_sech = functional.logsigmoid(2.0 * x) - x  # up to a constant
        log_slope = torch.add(self._log_double_width, log_sech, alpha=2.0)
        return self._normal.log_prob(x) - self._total(log_slope)

    def environment_log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape] after rounding.

        A bound has the probability of all x that rounding puts there: those that are at least half
        a rounding step further out than the next action inside. At a bound of 0, next to which
        floats are dense, these are the x for which the sigmoid underflows: practically none, unless
        the mean lies there.
        """
        is_rounded = self._is_rounded(action)
        log_smallest = -math.log(torch.finfo(self._log_rounded.dtype).max)  # of 1 / (1 + exp(-2x))
        log_rounded = self._log_rounded.clamp(min=log_smallest)
        log_fraction = torch.where(is_rounded, log_rounded, self._log_fraction(action))
        x = -0.5 * log_fraction.diff(dim=-1).squeeze(-1)
        mean, log_std = self._shaped(self._normal.mean), self._shaped(self._normal.log_std)
        standardised = (x - mean) * torch.exp(-log_std)
        log_slope = self._log_double_width + 2.0 * (functional.logsigmoid(2.0 * x) - x)
        log_density = -0.5 * standardised.square() - log_std - HALF_LOG_TWO_PI - log_slope
        on_low, on_high = is_rounded.unbind(dim=-1)
        return self._total(clipped_normal_log_prob(standardised, log_density, on_low, on_high))

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats, accurate to 1e-5 per component.

            H = log(std) + log(2 pi e) / 2 + E[log(d action / dx)]
            E[2 log sech(x)] = 2 log 2 - 2 E|x - y|

        for y with density sech(y)^2 / 2: both sides have the same limits and the same second
        derivative with respect to the mean. This logistic distribution is a scale mixture of
        normals (Andrews and Mallows 1974), approximated here by the six nodes of a Gauss
        quadrature. For normal x and y, E|x - y| has a closed form.
        """
        mean = self._normal.mean.unsqueeze(-1)
        variance = (2.0 * self._normal.log_std).exp().unsqueeze(-1)
        scales, weights = _quadrature(mean.dtype, mean.device)
        deviation = (variance + scales.square()).sqrt()  # [..., n, 6]
        ratio = mean / (deviation * math.sqrt(2.0))
        spread = deviation * math.sqrt(2.0 / math.pi) * torch.exp(-ratio.square())
        distance = spread + mean * torch.erf(ratio)
        log_volume = self._log_double_width.sum()
        return self._normal.entropy() + log_volume - 2.0 * (distance * weights).sum(dim=(-2, -1))

    def kl(self, other: ProbabilityDistribution) -> Tensor:
        """[...] KL(p || q) in nats, in closed form.

        It is the divergence of the normal distributions of x, since both are squashed by the same
        invertible function.
        """
        return self._normal.kl(self._comparable(other, SquashedGaussianProbabilityDistribution)._normal)

    def _squashed(self, x: Tensor) -> Tensor:
        return self.action_at(torch.sigmoid(torch.stack((2.0 * x, -2.0 * x), dim=-1)))
