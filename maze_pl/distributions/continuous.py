"""Shared parts of distributions over Box spaces."""

import functools
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
"""Constant of the log-density of a normal component: -z^2 / 2 - log(std) - this."""


class _Bounds(NamedTuple):
    """Tensors of a box. A pair [*shape, 2] is for its low and its high border.

    Attributes:
        bound: [*shape, 2] the borders, the outermost numbers of the type that lie within the box.
        width: [*shape, 2] signed distance from each border to the other one.
        step: [*shape, 2] half a rounding step at each border, as a fraction of the width.
        log_width: [*shape] logarithm of the width.
        log_double_width: [*shape] logarithm of twice the width.
        log_rounded: [*shape, 2] logarithm of the fraction of the width that is rounded to a border.
    """

    bound: Tensor
    width: Tensor
    step: Tensor
    log_width: Tensor
    log_double_width: Tensor
    log_rounded: Tensor


def has_floats(space: spaces.Box) -> bool:
    """True if the actions of a box are floats."""
    return bool(np.issubdtype(space.dtype, np.floating))


def has_any_bound(space: spaces.Box) -> bool:
    """True if a component of a box has a finite lower or upper bound."""
    return bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())


def require_bounds(owner: str, space: spaces.Space[Any]) -> None:
    """Refuse a space that actions cannot fill.

    Args:
        owner: Name of the distribution.
        space: Space of the head.

    Raises:
        TypeError: It is not a Box of floats, or a component is not between two finite bounds.
    """
    is_box = isinstance(space, spaces.Box) and has_floats(space)
    fault = unsuitable_bounds(space) if is_box else ""  # type: ignore[arg-type]
    if is_box and not fault:
        return
    needed = f"{owner} needs a Box of floats with finite bounds, got {space}"
    is_partly_bounded = is_box and has_any_bound(space)  # type: ignore[arg-type]
    raise TypeError(f"{needed}: {fault}" if is_partly_bounded else needed)


def unsuitable_bounds(space: spaces.Box) -> str:
    """Return a message on the first component of a box that actions cannot fill; empty if they can."""
    single = torch.finfo(torch.float32)
    width = np.subtract(space.high, space.low, dtype=np.float64)
    step = single.eps * np.maximum(np.abs(space.low), np.abs(space.high))
    is_unsuitable = ~((width > 2 * step) & (width < single.max))
    if not is_unsuitable.any():
        return ""
    place = tuple(np.argwhere(is_unsuitable)[0].tolist())
    low, high = space.low[place], space.high[place]
    remedy = "give each component two finite bounds"
    if low == high:
        remedy = "remove it from the action, as there is nothing to choose"
    elif np.isfinite(low) and np.isfinite(high):
        is_narrow = width[place] <= 2 * step[place]
        fault = "are equal" if is_narrow else "are too far apart"
        remedy = f"these {fault} in single precision, so rescale the action in the environment"
    part = f"component {[*place]}" if place else "it"
    return f"{part} has the bounds [{low}, {high}]; {remedy}"


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

    uses_bounds: ClassVar[bool] = True

    def _prepare(self) -> None:
        space: Any = self.action_space
        bounds = space.low.tobytes() + space.high.tobytes()
        stored = space.low.dtype.str
        logits = self.logits
        tensors = _stored_bounds(bounds, stored, space.low.shape, logits.dtype, logits.device)
        self._bound = tensors.bound
        self._width = tensors.width
        self._step = tensors.step
        self._log_width = tensors.log_width
        self._log_double_width = tensors.log_double_width
        self._log_rounded = tensors.log_rounded

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        try:
            require_bounds(cls.__name__, action_space)
        except TypeError as error:
            if isinstance(action_space, spaces.Box) and not has_any_bound(action_space):
                remedy = "for one without bounds there is DiagonalGaussianProbabilityDistribution"
                raise TypeError(f"{error}; {remedy}") from None
            raise
        return (2 * math.prod(action_space.shape or ()),)

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

    def _is_rounded(self, action: Tensor) -> Tensor:
        """[..., *shape, 2] whether `action` [..., *shape] lies on the low and on the high border, or beyond it."""
        return (action.to(self._bound.dtype).unsqueeze(-1) - self._bound) / self._width <= 0

    def _total(self, terms: Tensor) -> Tensor:
        """[...] sums of `terms` [..., *shape] over the components."""
        n_leading = terms.dim() - self._bound.dim() + 1
        return terms.reshape((*terms.shape[:n_leading], -1)).sum(dim=-1).to(self.logits.dtype)


@functools.cache  # never dropped, as graphs of a device read the tensors at their addresses
def _stored_bounds(
    bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> _Bounds:
    """Make the tensors of a box.

    Floats near 0 are denser than the rounding error at the size of the box, which is the lower
    limit of `step`, for densities that are comparable with those of actions inside. `log_rounded`
    has no such limit.

    Args:
        bounds: Bytes of the lowest, then of the highest values.
        stored: Type of these values, as `dtype.str`.
        shape: Shape of the box.
        dtype: Type of the logits; the tensors are float64 for float64, and float32 otherwise.
        device: Device of the tensors.
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
    log_rounded = log_spacing - np.log(np.abs(width), dtype=np.float64) - np.log(2.0)
    with torch.inference_mode(False):  # cached, and also used where gradients are computed

        def stored_tensor(array: Any) -> Tensor:
            return torch.from_numpy(array.astype(number)).to(device)

        widths = stored_tensor(width)
        log_width = widths[..., 0].log()
        return _Bounds(
            bound=stored_tensor(bound),
            width=widths,
            step=stored_tensor(step),
            log_width=log_width,
            log_double_width=log_width + math.log(2.0),
            log_rounded=stored_tensor(log_rounded),
        )
