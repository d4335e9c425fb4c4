"""Sums of terms of a loss, each with a factor that may be a tensor."""

import torch
from torch import Tensor


def add_scaled(total: Tensor, term: Tensor, factor: float | Tensor) -> Tensor:
    """Return `total + factor * term` in one operation.

    Args:
        total: A scalar.
        term: A scalar.
        factor: A number, or the tensor without dimensions of an option that follows a schedule.
    """
    if isinstance(factor, Tensor):
        return torch.addcmul(total, term, factor)
    return total.add(term, alpha=factor)


def subtract_scaled(total: Tensor, term: Tensor, factor: float | Tensor) -> Tensor:
    """Return `total - factor * term` in one operation, see `add_scaled`."""
    if isinstance(factor, Tensor):
        return torch.addcmul(total, term, factor, value=-1)
    return total.sub(term, alpha=factor)
