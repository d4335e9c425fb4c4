"""Scaling of numbers by their bounds."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import PerceptionBlock, is_list

Bound = float | Sequence[float]
"""One number for all entries, or a list with one for each."""


class Scaling(nn.Module):
    """Maps numbers from their bounds to 0..1, in the floating point type of the network.

        y = (x - low) / (high - low)

    Where both bounds are equal, y = x - low. Of integers with integer bounds the difference is
    exact, also if they are too large for floating point numbers, such as times in seconds.

    Args:
        block: The block that scales, for messages.
        n: Number of entries of the last dimension.
        low: Lowest values.
        high: Highest values.

    Raises:
        ValueError: A bound is not a finite number or a list of n of them, or `low` exceeds `high`.

    Attributes:
        widest: The largest difference of both bounds.
    """

    low: Tensor
    factor: Tensor
    integer_low: Tensor | None

    def __init__(self, block: PerceptionBlock, n: int, low: Bound, high: Bound) -> None:
        super().__init__()
        low, high = _plain(low), _plain(high)
        for name, bound in (("low", low), ("high", high)):
            values = list(bound) if is_list(bound) else [bound]  # type: ignore[arg-type]
            good = len(values) == n or not is_list(bound)
            good = good and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            good = good and bool(torch.tensor(values, dtype=torch.float64).isfinite().all())
            block.require(good, f"{name} to be a finite number or a list of {n} of them, not {bound!r}")
        lowest = torch.tensor(low, dtype=torch.float64)
        width = _width(low, high)
        block.require(bool((width >= 0).all()), f"low to be at most high, not low={low!r} and high={high!r}")
        self.widest = float(width.max()) if width.numel() else 0.0
        factor = torch.where(width > 0, 1.0 / width, 1.0)
        dtype = torch.get_default_dtype()
        self.low = nn.Buffer(lowest.to(dtype), persistent=False)
        self.factor = nn.Buffer(factor.to(dtype), persistent=False)
        self.register_buffer("integer_low", _integer_low(low, high), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled numbers [..., n]."""
        if self.integer_low is None or x.is_floating_point():
            return (x.to(self.low.dtype) - self.low) * self.factor
        return (x.to(torch.int64) - self.integer_low).to(self.low.dtype) * self.factor


def _plain(bound: Bound) -> Bound:
    """Return a bound with Python's numbers instead of NumPy's."""
    if isinstance(bound, np.ndarray | np.generic):
        plain: Bound = bound.tolist()
        return plain
    if isinstance(bound, list | tuple):
        return [value.item() if isinstance(value, np.generic) else value for value in bound]
    return bound


def _list(bound: Bound) -> list[float]:
    return [bound] if isinstance(bound, int | float) else list(bound)


def _width(low: Bound, high: Bound) -> Tensor:
    """Return high - low, [n] or [], without rounding large integers before they are subtracted."""
    lows, highs = _list(low), _list(high)
    n = max(len(lows), len(highs))
    pairs = zip(lows * (n // len(lows)), highs * (n // len(highs)), strict=True)
    widths = [float(highest - lowest) for lowest, highest in pairs]
    width = torch.tensor(widths, dtype=torch.float64)
    return width if is_list(low) or is_list(high) else width.squeeze(0)


def _integer_low(low: Bound, high: Bound) -> Tensor | None:
    """Return `low` as int64, [n] or []; None if it is 0, or differences may not be int64 numbers."""
    lows, highs = _list(low), _list(high)
    is_integer = all(float(value).is_integer() for value in lows)
    is_small = max(map(abs, (*lows, *highs))) < 2**62  # differences are below 2 ** 63 then
    if not is_integer or not is_small or not any(lows):
        return None
    integers = torch.tensor([int(value) for value in lows])
    return integers if is_list(low) else integers.squeeze(0)
