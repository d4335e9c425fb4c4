"""Distributions over Box spaces: a normal distribution, and two with bounded support."""

import functools
import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from maze_pl.distributions.probability_distribution import ProbabilityDistribution, drawn

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
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


class DiagonalGaussianProbabilityDistribution(ProbabilityDistribution):
    """Independent normal components: logits [..., 2n] are n means, then n log standard deviations.

    Samples are not clipped to the bounds of the Box. Actions are [..., *shape], n = prod(shape). A
    temperature T multiplies the variance by T.

    Raises:
        ValueError: A mask was given.
    """

    def _prepare(self) -> None:
        self.mean, log_std = self.logits.chunk(2, dim=-1)
        if self.temperature != 1.0:
            log_std = log_std + 0.5 * math.log(self.temperature)
        self.log_std = log_std

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        if not isinstance(action_space, spaces.Box) or not _has_floats(action_space):
            raise TypeError(f"{cls.__name__} needs a Box space of floats, got {action_space}")
        return (2 * math.prod(action_space.shape),)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] mean + std * noise; gradients flow through it."""
        noise = drawn(torch.randn, self.mean, generator)
        return self._shaped(self.mean + self.log_std.exp() * noise)

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the mean."""
        return self._shaped(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape]: sum of -z^2 / 2 - log(std) - log(2 pi) / 2."""
        standardised = (self._flat(action) - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * standardised.square() - self.log_std - _HALF_LOG_TWO_PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats."""
        return (self.log_std + (0.5 + _HALF_LOG_TWO_PI)).sum(dim=-1)


def _has_floats(space: spaces.Box) -> bool:
    return bool(np.issubdtype(space.dtype, np.floating))


class BoundedProbabilityDistribution(ProbabilityDistribution):
    """Independent components within a Box's bounds: logits [..., 2n], two per component.

    Actions are [..., *shape], n = prod(shape), and never outside the box. An action on the border,
    which only rounding reaches, gets the density half a rounding step inside the box.

    Raises:
        ValueError: A mask was given.
        TypeError: The space is not a Box with finite bounds.
    """

    def _prepare(self) -> None:
        space: Any = self.action_space
        bounds = space.low.tobytes() + space.high.tobytes()
        stored = space.low.dtype.str
        logits = self.logits
        # [*shape, 2] borders, signed distance from each to the other, its fraction used on a border
        self._border, self._width, self._step = _borders(bounds, stored, space.low.shape, logits.dtype, logits.device)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        if isinstance(action_space, spaces.Box) and _has_floats(action_space):
            single = torch.finfo(torch.float32)
            width = np.subtract(action_space.high, action_space.low, dtype=np.float64)
            step = single.eps * np.maximum(np.abs(action_space.low), np.abs(action_space.high))
            if ((width > 2 * step) & (width < single.max)).all():
                return (2 * math.prod(action_space.shape),)
        needed = "a Box of floats with finite bounds, low < high in each component"
        remedy = "for one without bounds there is DiagonalGaussianProbabilityDistribution"
        raise TypeError(f"{cls.__name__} needs {needed}, got {action_space}; {remedy}")

    def _action(self, fraction: Tensor) -> Tensor:
        """[..., *shape] actions at `fraction` [..., *shape, 2] of the width from low and high."""
        action = self._border + fraction * self._width  # computed from each of both borders
        is_nearer_to_low = fraction[..., 0] < fraction[..., 1]
        return torch.where(is_nearer_to_low, action[..., 0], action[..., 1])

    def _log_fraction(self, action: Tensor) -> Tensor:
        """Log-distances [..., *shape, 2] of `action` [..., *shape] from low and high.

        Distances are fractions of the width.
        """
        fraction = (action.to(self._border.dtype).unsqueeze(-1) - self._border) / self._width
        return torch.where(fraction > 0, fraction, self._step).log()

    def _total(self, terms: Tensor) -> Tensor:
        """[...] sums of `terms` [..., *shape] over the components."""
        n_leading = terms.dim() - self._border.dim() + 1
        return terms.reshape((*terms.shape[:n_leading], -1)).sum(dim=-1).to(self.logits.dtype)


@functools.lru_cache(maxsize=64)
def _borders(
    bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Borders of a box, distances between them, and half rounding steps.

    Borders are the outermost numbers of this type.
    Floats near 0 are denser than the rounding error at the size of the box, which is the lower
    limit of a step.
    """
    number: Any = np.float64 if dtype == torch.float64 else np.float32
    exact = np.moveaxis(np.frombuffer(bounds, stored).reshape(2, *shape), 0, -1)
    border = exact.astype(number)
    inward = np.array([np.inf, -np.inf], number)
    border = np.where((exact - border) * np.sign(inward) > 0, np.nextafter(border, inward), border)
    width = border[..., ::-1] - border
    step = np.maximum((np.nextafter(border, inward) - border) / width, np.finfo(number).eps / 4) / 2
    with torch.inference_mode(False):  # cached, and also used where gradients are computed
        return [torch.from_numpy(array.astype(number)).to(device) for array in (border, width, step)]


class SquashedGaussianProbabilityDistribution(BoundedProbabilityDistribution):
    """Tanh-squashed normal components: actions low + (high - low) * (1 + tanh(x)) / 2 for normal x.

    Logits [..., 2n] are n means, then n log standard deviations of x; a temperature T
    multiplies the variance of x by T. See `BoundedProbabilityDistribution` for actions and borders.
    Haarnoja et al. 2018, arXiv:1801.01290, appendix C.

    If gradients flow through the latest sample, its x is kept: `log_prob` of that very tensor and
    its gradient are exact even if rounding has put the action on a border.

    Raises:
        ValueError: A mask was given.

    Example:
        >>> from gymnasium import spaces
        >>> logits, space = torch.tensor([30.0, 0.0]), spaces.Box(-2.0, 2.0, (1,))
        >>> SquashedGaussianProbabilityDistribution(logits, space).deterministic_sample()
        tensor([2.])
    """

    _latest: tuple[Tensor, Tensor] | None = None  # an action and its x

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
        log_slope = self._width[..., 0].log() + math.log(2.0) + 2.0 * log_sech
        return self._normal.log_prob(x) - self._total(log_slope)

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
        scales, weights = mean.new_tensor((_SCALES, _WEIGHTS)).unbind()
        deviation = (variance + scales.square()).sqrt()  # [..., n, 6]
        ratio = mean / (deviation * math.sqrt(2.0))
        spread = deviation * math.sqrt(2.0 / math.pi) * torch.exp(-ratio.square())
        distance = spread + mean * torch.erf(ratio)
        log_volume = (self._width[..., 0].log() + math.log(2.0)).sum()
        return self._normal.entropy() + log_volume - 2.0 * (distance * weights).sum(dim=(-2, -1))

    def _squashed(self, x: Tensor) -> Tensor:
        return self._action(torch.sigmoid(torch.stack((2.0 * x, -2.0 * x), dim=-1)))


class BetaProbabilityDistribution(BoundedProbabilityDistribution):
    """Independent unimodal beta components between the borders of the box.

        alpha = 1 + softplus(l_alpha) / T,   beta = 1 + softplus(l_beta) / T

    Logits [..., 2n] are n l_alpha, then n l_beta. At temperature T the density is proportional to
    the density at T = 1 to the power of 1 / T. See `BoundedProbabilityDistribution` for actions and
    borders. Chou et al. 2017, http://proceedings.mlr.press/v70/chou17a.html. Computed in float64,
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
        shape = self._border.shape[:-1]
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
        return self._between(self.concentration - (1.0 - torch.finfo(torch.float64).eps))

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of `action` [..., *shape], summed over the components.

        For a = (action - low) / (high - low), the log-density is
        (alpha - 1) log(a) + (beta - 1) log(1 - a) - log B(alpha, beta) - log(high - low).
        """
        powers = ((self.concentration - 1.0) * self._log_fraction(action)).sum(dim=-1)
        return self._total(powers - _log_beta(self.concentration) - self._width[..., 0].log())

    def entropy(self) -> Tensor:
        """[...] differential entropy in nats, summed over the components.

            log B(alpha, beta) + log(high - low) - (alpha - 1) E[log(a)] - (beta - 1) E[log(1 - a)]

        where E[log(a)] = psi(alpha) - psi(alpha + beta).
        """
        concentration = self.concentration
        total = concentration.sum(dim=-1, keepdim=True)
        mean_log = torch.digamma(concentration) - torch.digamma(total)
        powers = ((concentration - 1.0) * mean_log).sum(dim=-1)
        return self._total(self._width[..., 0].log() + _log_beta(concentration) - powers)

    def _between(self, weight: Tensor) -> Tensor:
        return self._action((weight / weight.sum(dim=-1, keepdim=True)).to(self.logits))


def _log_beta(concentration: Tensor) -> Tensor:
    """[...] logarithm of the beta function for pairs [..., 2]."""
    return torch.lgamma(concentration).sum(dim=-1) - torch.lgamma(concentration.sum(dim=-1))
