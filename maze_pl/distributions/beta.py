"""The beta distribution, stretched to a bounded Box."""

import functools
from typing import Self

import torch
from torch import Tensor

from maze_pl.distributions.bounded import BoundedProbabilityDistribution


class BetaProbabilityDistribution(BoundedProbabilityDistribution):
    """Independent beta components between the borders of the box, each with one mode.

        alpha = 1 + softplus(l_alpha) / T,   beta = 1 + softplus(l_beta) / T

    Logits [..., 2n] are the n l_alpha and then the n l_beta; at temperature T the density is proportional to that at 1
    to the power of 1 / T. See `BoundedProbabilityDistribution` for actions and borders. Chou et al. 2017,
    http://proceedings.mlr.press/v70/chou17a.html. Computed in float64, since differences of large numbers of the gamma
    function are taken.

    Raises:
        ValueError: A mask was given.

    Example:
        >>> from gymnasium import spaces
        >>> logits = torch.zeros(2)
        >>> BetaProbabilityDistribution(logits, spaces.Box(0.0, 3.0, (1,))).deterministic_sample()
        tensor([1.5000])
    """

    @functools.cached_property
    def concentration(self) -> Tensor:
        """[..., *shape, 2] alpha and beta."""
        leading, shape = self.logits.shape[:-1], self._border.shape[:-1]
        pairs = self.logits.double().reshape((*leading, 2, *shape)).movedim(len(leading), -1)
        return 1.0 + torch.nn.functional.softplus(pairs) / self.temperature

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] actions; gradients flow through them (implicitly, Figurnov et al. 2018, arXiv:1805.08498).

        Made from gamma distributed numbers that are drawn on the generator's device, by the private function of torch
        that torch.distributions uses: no public one takes a generator.
        """
        device = self.logits.device if generator is None else generator.device
        return self._between(torch._standard_gamma(self.concentration.to(device), generator=generator))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the mode; the middle where all is equally likely."""
        return self._between(self.concentration - (1.0 - torch.finfo(torch.float64).eps))

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape], summed over the components.

        With a = (action - low) / (high - low) it is
        (alpha - 1) log(a) + (beta - 1) log(1 - a) - log B(alpha, beta) - log(high - low).
        """
        powers = ((self.concentration - 1.0) * self._log_fraction(action)).sum(dim=-1)
        return self._total(powers - _log_beta(self.concentration) - self._width[..., 0].log())

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats: log(high - low) less what it differs from the uniform distribution."""
        return self._total(self._width[..., 0].log() - self._divergence(self.concentration.new_ones(2)))

    def kl(self, other: Self) -> Tensor:
        """[...] KL(self || other) in nats, summed over the components."""
        return self._total(self._divergence(other.concentration))

    def _divergence(self, other: Tensor) -> Tensor:
        """[..., *shape] KL to other concentrations (alpha', beta') [..., *shape, 2].

        log B(alpha', beta') - log B(alpha, beta) + (alpha - alpha') psi(alpha) + (beta - beta') psi(beta)
        + (alpha' - alpha + beta' - beta) psi(alpha + beta), psi the digamma function.
        """
        own = self.concentration
        mean_log = torch.digamma(own) - torch.digamma(own.sum(dim=-1, keepdim=True))
        return _log_beta(other) - _log_beta(own) + ((own - other) * mean_log).sum(dim=-1)

    def _between(self, weight: Tensor) -> Tensor:
        return self._action((weight / weight.sum(dim=-1, keepdim=True)).to(self.logits))


def _log_beta(concentration: Tensor) -> Tensor:
    """[...] logarithm of the beta function of pairs [..., 2]."""
    return torch.lgamma(concentration).sum(dim=-1) - torch.lgamma(concentration.sum(dim=-1))
