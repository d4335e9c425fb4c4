"""Soft updates of target networks: tensors move a fraction of the way to other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from maze_pl.core.tensor_pieces import gains_from_pieces, in_pieces, piece_size


class SoftUpdate:
    """Moves tensors towards others: target + tau * (tensor - target).

    On a GPU the tensors are cut into pieces, see `tensor_pieces`. This is done once, as long as they
    stay in place. The pieces keep the memory of the tensors in use: call `forget` before the
    tensors move to another device. Copies and pickles contain no pieces.
    """

    def __init__(self) -> None:
        self._whole: list[Tensor] = []  # tensors that the pieces were cut from
        self._pieces: tuple[list[Tensor], list[Tensor]] = ([], [])

    def __reduce__(self) -> Any:
        return SoftUpdate, ()

    @torch.no_grad()
    def apply(self, targets: Sequence[Tensor], tensors: Sequence[Tensor], tau: float) -> None:
        """Move each target, in place.

        Args:
            targets: Tensors to move.
            tensors: For each of them, the tensor that it follows.
            tau: Fraction of the way; 1 copies the tensors.
        """
        moving = list(targets), list(tensors)
        if targets and gains_from_pieces(targets[0].device):
            moving = self._in_pieces(*moving)
        torch._foreach_lerp_(*moving, tau)

    def forget(self) -> None:
        """Release the memory of the tensors."""
        self._whole = []
        self._pieces = ([], [])

    def _in_pieces(self, targets: list[Tensor], tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        every = (*targets, *tensors)
        if [tensor.data_ptr() for tensor in every] != [tensor.data_ptr() for tensor in self._whole]:
            self._whole = [tensor.detach() for tensor in every]
            self._pieces = targets, tensors
            if all(tensor.is_contiguous() for tensor in every):
                size = piece_size([tensor.numel() for tensor in targets])
                pieces = in_pieces(self._whole, size)
                self._pieces = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
        return self._pieces
