"""Views of large tensors, for kernels of torch that work on lists of tensors.

On a GPU such a kernel gives each multiprocessor up to 65,536 numbers of one tensor, so that a few
large tensors occupy a few multiprocessors only. Cut into pieces they occupy more of them, with the
same numbers, as these kernels compute each number for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MOST_PIECES = 36
"""Number of tensors for which torch launches one kernel, with four buffers of each as in Adam."""
SMALLEST_PIECE = 4096
"""Minimum size of a piece, a multiple of the numbers that a thread loads at once."""


def gains_from_pieces(device: torch.device) -> bool:
    """True if work on lists of tensors takes less time on a device if the tensors are small."""
    return device.type == "cuda"


def piece_size(sizes: Sequence[int]) -> int:
    """Return a size of pieces such that one kernel works on all of them.

    Args:
        sizes: Numbers of elements of the tensors; more than `MOST_PIECES` tensors are not cut.

    Example:
        >>> piece_size([140_000]), piece_size([1000, 100])
        (4096, 4096)
    """
    places = MOST_PIECES - len(sizes)  # one piece of each tensor may be a smaller rest
    if places <= 0:
        return max(sizes)
    fair = -(-sum(sizes) // places)
    return SMALLEST_PIECE * max(1, -(-fair // SMALLEST_PIECE))


def in_pieces(tensors: Sequence[Tensor], size: int) -> list[Tensor]:
    """Return views of contiguous tensors, of at most `size` elements each, in order."""
    pieces: list[Tensor] = []
    for tensor in tensors:
        pieces += torch.split(tensor.view(-1), size)
    return pieces
