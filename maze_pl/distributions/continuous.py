"""Shared parts of distributions over Box spaces."""

import functools
import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution


def has_floats(space: spaces.Box) -> bool:
    """True if the actions of a box are floats."""
    return bool(np.issubdtype(space.dtype, np.floating))


def clipped_normal_log_prob(standardised: Tensor, log_density: Tensor, on_low: Tensor, on_high: Tensor) -> Tensor:
    """Log-probabilities [..., n] of normal components that are clipped to an interval.

        log P(x <= low) on the lower bound, log P(x >= high) on the upper one, log p(x) between them

    As in the likelihood of Tobit models, Tobin 1958, "Estimation of relationships for limited
    dependent variables". Tails far from the mean do not underflow.

    Args:
        standardised: [..., n] (x - mean) / std.
        log_density: [..., n] log-densities between the bounds.
        on_low: [..., n] whether components lie on the lower bound.
        on_high: [..., n] whether components lie on the upper bound.
    """
    tail = torch.special.log_ndtr(torch.where(on_low, standardised, -standardised))
    clipped = torch.where(on_low & on_high, torch.zeros_like(tail), tail)
    return torch.where(on_low | on_high, clipped, log_density)


class BoundedProbabilityDistribution(ProbabilityDistribution):
    """Independent components within a Box's bounds: logits [..., 2n], two per component.

    Actions are [..., *shape], n = prod(shape), and never outside the box. An action on the bound,
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
        # [*shape, 2] bounds, signed distance from each to the other, its fraction on a bound;
        # [*shape] log width and log of twice the width; [*shape, 2] log of the fraction that is rounded to a bound
        tensors = _stored_bounds(bounds, stored, space.low.shape, logits.dtype, logits.device)
        self._bound, self._width, self._step, self._log_width, self._log_double_width, self._log_rounded = tensors

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        if isinstance(action_space, spaces.Box) and has_floats(action_space):
            single = torch.finfo(torch.float32)
            width = np.subtract(action_space.high, action_space.low, dtype=np.float64)
            step = single.eps * np.maximum(np.abs(action_space.low), np.abs(action_space.high))
            if ((width > 2 * step) & (width < single.max)).all():
                return (2 * math.prod(action_space.shape),)
        needed = "a Box of floats with finite bounds, low < high in each component"
        remedy = "for one without bounds there is DiagonalGaussianProbabilityDistribution"
        raise TypeError(f"{cls.__name__} needs {needed}, got {action_space}; {remedy}")

    def action_at(self, fraction: Tensor) -> Tensor:
        """[..., *shape] actions at `fraction` [..., *shape, 2] of the width from low and high."""
        from_low, from_high = fraction.unbind(dim=-1)
        low_action, high_action = (self._bound + fraction * self._width).unbind(dim=-1)
        return torch.where(from_low < from_high, low_action, high_action)

    def _log_fraction(self, action: Tensor) -> Tensor:
        """Log-distances [..., *shape, 2] of `action` [..., *shape] from low and high.

        Distances are fractions of the width.
        """
        fraction = (action.to(self._bound.dtype).unsqueeze(-1) - self._bound) / self._width
        return torch.where(fraction > 0, fraction, self._step).log()

    def _total(self, terms: Tensor) -> Tensor:
        """[...] sums of `terms` [..., *shape] over the components."""
        n_leading = terms.dim() - self._bound.dim() + 1
        return terms.reshape((*terms.shape[:n_leading], -1)).sum(dim=-1).to(self.logits.dtype)


@functools.cache  # never dropped, as graphs of a device read the tensors at their addresses
def _stored_bounds(
    bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Borders of a box, distances between them, half rounding steps, and logarithms.

    The logarithms are those of the distances, of twice the distances, and of the steps.

    Borders are the outermost numbers of this type. Steps are fractions of the width.
    Floats near 0 are denser than the rounding error at the size of the box, which is the lower
    limit of a step, for densities that are comparable with those of actions inside. The logarithms
    have no such limit, except on a border of 0, which rounding does not reach.
    """
    number: Any = np.float64 if dtype == torch.float64 else np.float32
    exact = np.moveaxis(np.frombuffer(bounds, stored).reshape(2, *shape), 0, -1)
    bound = exact.astype(number)
    inward = np.array([np.inf, -np.inf], number)
    bound = np.where((exact - bound) * np.sign(inward) > 0, np.nextafter(bound, inward), bound)
    width = bound[..., ::-1] - bound
    spacing = np.nextafter(bound, inward) - bound
    step = np.maximum(spacing / width, np.finfo(number).eps / 4) / 2
    log_spacing = np.log(np.abs(spacing), dtype=np.float64)
    log_true = log_spacing - np.log(np.abs(width), dtype=np.float64) - np.log(2.0)
    log_rounded = np.where(bound == 0, np.log(step), log_true)
    with torch.inference_mode(False):  # cached, and also used where gradients are computed
        arrays = (bound, width, step, log_rounded)
        numbers = [torch.from_numpy(array.astype(number)).to(device) for array in arrays]
        log_width = numbers[1][..., 0].log()
        return [*numbers[:3], log_width, log_width + math.log(2.0), numbers[3]]
