"""Scaling of numbers by their bounds."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.perception_block import PerceptionBlock, is_list

Bound = float | Sequence[float]
"""One number for all entries, or a list with one for each."""


class Scaling(nn.Module):
    """Maps numbers from their bounds to 0..1, in the floating point type of the network.

        y = (x - low) / (high - low)

    Where both bounds are equal, y = x - low.

    Args:
        block: The block that scales, for messages.
        n: Number of entries of the last dimension.
        low: Lowest values.
        high: Highest values.

    Raises:
        ValueError: A bound is not a finite number or a list of n of them, or `low` exceeds `high`.
    """

    low: Tensor
    factor: Tensor

    def __init__(self, block: PerceptionBlock, n: int, low: Bound, high: Bound) -> None:
        super().__init__()
        for name, bound in (("low", low), ("high", high)):
            values = list(bound) if is_list(bound) else [bound]  # type: ignore[arg-type]
            good = len(values) == n or not is_list(bound)
            good = good and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            good = good and bool(torch.tensor(values, dtype=torch.float64).isfinite().all())
            block.require(good, f"{name} to be a finite number or a list of {n} of them, not {bound!r}")
        lowest = torch.tensor(low, dtype=torch.float64)
        width = torch.tensor(high, dtype=torch.float64) - lowest
        block.require(bool((width >= 0).all()), f"low to be at most high, not low={low!r} and high={high!r}")
        factor = torch.where(width > 0, 1.0 / width, 1.0)
        dtype = torch.get_default_dtype()
        self.low = nn.Buffer(lowest.to(dtype), persistent=False)
        self.factor = nn.Buffer(factor.to(dtype), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled numbers [..., n]."""
        return (x.to(self.low.dtype) - self.low) * self.factor
