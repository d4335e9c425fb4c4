"""Pooling over the elements of a dimension that exist."""

from typing import Literal

import torch
from torch import Tensor

PoolingFunction = Literal["mean", "sum", "max"]
"""Reduction over a dimension."""


def masked_pooling(
    x: Tensor, mask: Tensor | None = None, *, pooling_func: PoolingFunction, dim: int | tuple[int, ...]
) -> Tensor:
    """Mean, sum or maximum over the elements that exist, 0 if there are none; others are ignored.

    Args:
        x: Tensor to pool, [..., N, ...].
        mask: Not 0 where an element exists; its shape is the first dimensions of `x`, up to N or
            further. None if all exist.
        pooling_func: "mean", "sum" or "max".
        dim: The dimension N, counted from the right, which is removed; or several.

    Example:
        >>> import torch
        >>> masked_pooling(torch.tensor([1.0, 2.0, 7.0]), torch.tensor([1, 1, 0]), pooling_func="mean", dim=-1)
        tensor(1.5000)
    """
    if mask is None:
        pooled: Tensor = getattr(x, "amax" if pooling_func == "max" else pooling_func)(dim)
        return pooled
    exists = (mask != 0)[(..., *[None] * (x.dim() - mask.dim()))]
    x = torch.where(exists, x, -torch.inf if pooling_func == "max" else 0.0)
    if pooling_func == "max":
        return torch.where(exists.any(dim), x.amax(dim), 0.0)
    return x.sum(dim) if pooling_func == "sum" else x.sum(dim) / exists.sum(dim).clamp(min=1)
