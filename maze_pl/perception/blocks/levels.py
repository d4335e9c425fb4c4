"""One-hot encoding of whole numbers, for blocks that compare them."""

import torch
from torch import Tensor


def whole_numbers(x: Tensor) -> Tensor:
    """Convert whole numbers to a type that holds their differences, and many levels.

    Integers and flags become int64, because differences of bytes wrap around; floats become at
    least float32.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.int64)


def one_hot_levels(x: Tensor, lowest: int, highest: int, dtype: torch.dtype) -> Tensor:
    """Encode whole numbers [..., F] as one-hot vectors [..., F * (highest - lowest + 1)].

    Numbers above `highest` count as `highest`; numbers below `lowest` become zeros.
    """
    x = whole_numbers(x)
    levels = torch.arange(lowest, highest + 1, dtype=x.dtype, device=x.device)
    return (x.clamp(max=highest).unsqueeze(-1) == levels).flatten(-2).to(dtype)
