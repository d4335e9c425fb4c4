"""The normal distribution squashed into a bounded Box by the hyperbolic tangent."""

import functools
import math
from typing import Self

import torch
from torch import Tensor

from maze_pl.distributions.bounded import BoundedProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian import DiagonalGaussianProbabilityDistribution

# Deviations and weights of normal distributions that mix to the logistic distribution with density sech(y)^2 / 2.
_SCALES = (0.38375647725, 0.522913009794, 0.719706434235, 1.005737704013, 1.403178821064, 1.943589065356)
_WEIGHTS = (0.007484715142, 0.131302829735, 0.397856723794, 0.357674817979, 0.100420870223, 0.005260043126)


class SquashedGaussianProbabilityDistribution(BoundedProbabilityDistribution):
    """Independent normal components x, of which low + (high - low) * (1 + tanh(x)) / 2 are the actions.

    Logits [..., 2n] are the n means and then the n logarithms of the deviations of x; a temperature T multiplies the
    variance of x by T. See `BoundedProbabilityDistribution` for actions and borders. Haarnoja et al. 2018,
    arXiv:1801.01290, appendix C.

    What `sample` has just returned is known without rounding if gradients flow through it: `log_prob` of that very
    tensor is right, and has the right gradient, even where the action is too close to a border for its type.

    Raises:
        ValueError: A mask was given.

    Example:
        >>> from gymnasium import spaces
        >>> logits = torch.tensor([30.0, 0.0])
        >>> SquashedGaussianProbabilityDistribution(logits, spaces.Box(-2.0, 2.0, (1,))).deterministic_sample()
        tensor([2.])
    """

    _latest: tuple[Tensor, Tensor] | None = None  # an action, and the x that it was made of

    @functools.cached_property
    def _normal(self) -> DiagonalGaussianProbabilityDistribution:
        return DiagonalGaussianProbabilityDistribution(self.logits, self.action_space, self.temperature)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] actions; gradients flow through them."""
        x = self._normal.sample(generator)
        action = self._squashed(x)
        self._latest = (action, x) if x.requires_grad else None
        return action

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the median, which is what the mean of x becomes."""
        return self._squashed(self._normal.deterministic_sample())

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape]: that of x, less log |d action / dx|, summed."""
        if self._latest is not None and action is self._latest[0]:
            x = self._latest[1]
        else:
            x = -0.5 * self._log_fraction(action).diff(dim=-1).squeeze(-1)
        log_slope = self._width[..., 0].log() + math.log(2.0) + 2.0 * (torch.nn.functional.logsigmoid(2.0 * x) - x)
        return self._normal.log_prob(x) - self._total(log_slope)

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats, to 1e-5 for each component.

            H = log(std) + log(2 pi e) / 2 + E[log(d action / dx)],   E[2 log sech(x)] = 2 log 2 - 2 E|x - y|

        for y with the density sech(y)^2 / 2, as both sides have the same second derivative by the mean and the same
        limits. This logistic distribution is a mixture of normal ones of all scales (Andrews and Mallows 1974), here of
        the six of a Gauss quadrature, and the mean of |x - y| for normal x and y is known.
        """
        mean, variance = self._normal.mean.unsqueeze(-1), (2.0 * self._normal.log_std).exp().unsqueeze(-1)
        scales, weights = mean.new_tensor((_SCALES, _WEIGHTS)).unbind()
        deviation = (variance + scales.square()).sqrt()  # [..., n, 6]
        ratio = mean / (deviation * math.sqrt(2.0))
        distance = deviation * math.sqrt(2.0 / math.pi) * torch.exp(-ratio.square()) + mean * torch.erf(ratio)
        log_volume = (self._width[..., 0].log() + math.log(2.0)).sum()
        return self._normal.entropy() + log_volume - 2.0 * (distance * weights).sum(dim=(-2, -1))

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, that of the two x, summed over the components."""
        return self._normal.kl(other._normal)

    def _squashed(self, x: Tensor) -> Tensor:
        return self._action(torch.sigmoid(torch.stack((2.0 * x, -2.0 * x), dim=-1)))
