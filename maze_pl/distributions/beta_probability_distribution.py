"""Beta distribution over bounded boxes."""

import functools

import torch
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.continuous import BoundedProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution


class BetaProbabilityDistribution(BoundedProbabilityDistribution):
    """Independent unimodal beta components between the bounds of the box.

        alpha = 1 + softplus(l_alpha) / T,   beta = 1 + softplus(l_beta) / T

    Logits [..., 2n] are n l_alpha, then n l_beta. At temperature T the density is proportional to
    the density at T = 1 to the power of 1 / T. See `BoundedProbabilityDistribution` for actions and
    bounds. Chou et al. 2017, http://proceedings.mlr.press/v70/chou17a.html. Computed in float64,
    because large values of log-gamma functions cancel.

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
        leading = self.logits.shape[:-1]
        shape = self._bound.shape[:-1]
        pairs = self.logits.double().reshape((*leading, 2, *shape)).movedim(len(leading), -1)
        return 1.0 + functional.softplus(pairs) / self.temperature

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] actions; gradients flow through them.

        Gradients are implicit, Figurnov et al. 2018, arXiv:1805.08498. Actions are made from gamma
        variates drawn on the generator's device by the private torch function that
        torch.distributions uses, because no public one takes a generator.
        """
        device = self.logits.device if generator is None else generator.device
        concentration = self.concentration.to(device)
        return self._between(torch._standard_gamma(concentration, generator=generator))

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the mode; the middle of the box for a uniform distribution."""
        # a sum with such a small number would be left out in ONNX
        return self._between((self.concentration - 1.0).clamp(min=torch.finfo(torch.float64).eps))

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape], summed over the components.

        For a = (action - low) / (high - low), the log-density is
        (alpha - 1) log(a) + (beta - 1) log(1 - a) - log B(alpha, beta) - log(high - low).
        """
        powers = ((self.concentration - 1.0) * self._log_fraction(action)).sum(dim=-1)
        return self._total(powers - _log_beta(self.concentration) - self._log_width)

    def environment_log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape] after rounding.

        A bound has the probability of all samples that rounding puts there. For the small fraction
        f of the width that is rounded to the lower one, it is f^alpha / (alpha * B(alpha, beta)),
        the leading term of the incomplete beta function; beta takes the place of alpha for the upper one.
        """
        concentration = self.concentration
        log_beta = _log_beta(concentration)
        powers = ((concentration - 1.0) * self._log_fraction(action)).sum(dim=-1)
        is_rounded = self._is_rounded(action)
        masses = concentration * self._log_rounded - concentration.log() - log_beta.unsqueeze(-1)
        mass = torch.where(is_rounded, masses, 0.0).sum(dim=-1).clamp(max=0.0)
        return self._total(torch.where(is_rounded.any(dim=-1), mass, powers - log_beta - self._log_width))

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats, summed over the components.

            log B(alpha, beta) + log(high - low) - (alpha - 1) E[log(a)] - (beta - 1) E[log(1 - a)]

        where E[log(a)] = psi(alpha) - psi(alpha + beta).
        """
        concentration = self.concentration
        total = concentration.sum(dim=-1, keepdim=True)
        mean_log = torch.digamma(concentration) - torch.digamma(total)
        powers = ((concentration - 1.0) * mean_log).sum(dim=-1)
        return self._total(self._log_width + _log_beta(concentration) - powers)

    def kl(self, other: ProbabilityDistribution) -> Tensor:
        """[...] KL(p || q) in nats, in closed form, summed over the components.

            log B(q) - log B(p) + (alpha_p - alpha_q) E[log(a)] + (beta_p - beta_q) E[log(1 - a)]

        for the beta function B, and means over actions a of p as in `entropy`.
        """
        reference = self._comparable(other, BetaProbabilityDistribution).concentration
        concentration = self.concentration
        total = concentration.sum(dim=-1, keepdim=True)
        mean_log = torch.digamma(concentration) - torch.digamma(total)
        powers = ((concentration - reference) * mean_log).sum(dim=-1)
        return self._total(_log_beta(reference) - _log_beta(concentration) + powers)

    def _between(self, weight: Tensor) -> Tensor:
        return self.action_at((weight / weight.sum(dim=-1, keepdim=True)).to(self.logits))


def _log_beta(concentration: Tensor) -> Tensor:
    """[...] logarithm of the beta function for pairs [..., 2]."""
    return torch.lgamma(concentration).sum(dim=-1) - torch.lgamma(concentration.sum(dim=-1))
