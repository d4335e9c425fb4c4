"""Distribution of a deterministic policy over bounded boxes, with noise for exploration."""

import functools
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.continuous import (
    HALF_LOG_TWO_PI,
    clipped_normal_log_prob,
    require_bounds,
)
from maze_pl.distributions.probability_distribution import ProbabilityDistribution, drawn


class _Box(NamedTuple):
    """Bounds of a box as tensors [*shape]."""

    low: Tensor
    high: Tensor
    centre: Tensor
    half_width: Tensor


class DeterministicProbabilityDistribution(ProbabilityDistribution):
    """One action of a bounded box; samples have normal noise, and stay within the bounds.

        mu = centre + half_width * tanh(logits),   sample = clip(mu + half_width * scale * noise)

    Logits are [..., n], actions [..., *shape], n = prod(shape). The scale of the noise is the
    policy's `exploration`, in halves of the box: 0.1 is a tenth of the way from the centre to a
    bound. A temperature T multiplies the variance by T. Densities and entropies are those of the
    noise before it is cut off at the bounds.

    Raises:
        ValueError: A mask was given.

    Example:
        >>> logits, space = torch.tensor([0.0]), spaces.Box(0.0, 3.0, (1,))
        >>> DeterministicProbabilityDistribution(logits, space).sample()
        tensor([1.5000])
    """

    has_exploration_scale: ClassVar[bool] = True
    uses_bounds: ClassVar[bool] = True

    def _prepare(self) -> None:
        space: Any = self.action_space
        bounds = space.low.tobytes() + space.high.tobytes()
        self._box = _box(bounds, space.low.dtype.str, space.low.shape, self.logits.dtype, self.logits.device)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(number of components,)."""
        require_bounds(cls.__name__, action_space)
        return (math.prod(action_space.shape or ()),)

    def deterministic_sample(self) -> Tensor:
        """[..., *shape] the action mu; gradients flow through it."""
        box = self._box
        unit = torch.tanh(self._shaped(self.logits))
        return torch.clamp(torch.addcmul(box.centre, box.half_width, unit), box.low, box.high)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[..., *shape] actions with the noise of exploration; gradients flow through them."""
        return self.perturbed(self._scale(), generator=generator)

    def perturbed(
        self, scale: Tensor | float, limit: Tensor | float = math.inf, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return mu with normal noise, within the bounds.

        Args:
            scale: Standard deviation of the noise, in halves of the box.
            limit: Largest absolute value of the noise, in halves of the box.
            generator: Source of randomness.

        Returns:
            [..., *shape]
        """
        box = self._box
        action = self.deterministic_sample()
        noise = drawn(torch.randn, action, generator) * scale
        if limit is not math.inf:
            noise = noise.clamp(-limit, limit)  # type: ignore[arg-type]  # two numbers or two tensors
        return torch.clamp(torch.addcmul(action, box.half_width, noise), box.low, box.high)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-density of the noise that leads to `action` [..., *shape]."""
        _, log_density = self._standardised(action.to(self.logits.dtype))
        return self._total(log_density)

    def environment_log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape] after clipping.

        See `clipped_normal_log_prob`.
        """
        box = self._box
        action = action.to(self.logits.dtype)
        on_low, on_high = action <= box.low, action >= box.high
        standardised, log_density = self._standardised(action)
        return self._total(clipped_normal_log_prob(standardised, log_density, on_low, on_high))

    def entropy(self) -> Tensor:
        """[...] differential entropy of the noise in nats; minus infinity without noise."""
        deviation = self._scale() * self._box.half_width
        terms = torch.log(deviation) + (0.5 + HALF_LOG_TWO_PI)
        return self._total(terms.expand_as(self._shaped(self.logits)))

    def kl(self, other: ProbabilityDistribution) -> Tensor:
        """[...] KL(p || q) in nats of the noise, before it is cut off at the bounds.

        sum of log(s_q / s_p) + (s_p^2 + (mu_p - mu_q)^2) / (2 s_q^2) - 1/2
        """
        reference = self._comparable(other, DeterministicProbabilityDistribution)
        deviation = self._scale() * self._box.half_width
        reference_deviation = reference._scale() * reference._box.half_width
        distance = self.deterministic_sample() - reference.deterministic_sample()
        squares = (deviation.square() + distance.square()) / (2.0 * reference_deviation.square())
        return self._total(torch.log(reference_deviation / deviation) + squares - 0.5)

    def _standardised(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """[..., *shape] noise of an action, in standard deviations, and its log-density."""
        deviation = self._scale() * self._box.half_width
        standardised = (action - self.deterministic_sample()) / deviation
        return standardised, -0.5 * standardised.square() - torch.log(deviation) - HALF_LOG_TWO_PI

    def _scale(self) -> Tensor | float:
        """Standard deviation of the noise in halves of the box."""
        return self.exploration if self.temperature == 1.0 else self.exploration * math.sqrt(self.temperature)

    def _total(self, terms: Tensor) -> Tensor:
        """[...] sums over the components [..., *shape]."""
        return terms.reshape(self.logits.shape).sum(dim=-1)


@functools.cache  # never dropped, as graphs of a device read the tensors at their addresses
def _box(bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> _Box:
    """Make the tensors of a box; its bounds are rounded inwards."""
    number: Any = np.float64 if dtype == torch.float64 else np.float32
    exact = np.frombuffer(bounds, stored).reshape(2, *shape)
    low = exact[0].astype(number)
    high = exact[1].astype(number)
    low = np.where(low < exact[0], np.nextafter(low, number(np.inf)), low)
    high = np.where(high > exact[1], np.nextafter(high, number(-np.inf)), high)
    centre = (exact[0] + exact[1].astype(np.float64)) / 2
    half_width = (exact[1] - exact[0].astype(np.float64)) / 2
    with torch.inference_mode(False):  # cached, and also used where gradients are computed
        arrays = [np.asarray(array, number) for array in (low, high, centre, half_width)]
        return _Box(*(torch.from_numpy(array).to(device) for array in arrays))
