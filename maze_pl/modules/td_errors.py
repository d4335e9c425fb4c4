"""TD errors of the acts of a batch, by which prioritised replay samples."""

from __future__ import annotations

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch


class TDErrors:
    """Keeps the TD errors of a batch for the buffer that it was drawn from, if that is prioritised.

    A loss keeps the errors of each minibatch. A trace keeps none when it is run, so that losses are
    traced only if no errors are wanted.

    Attributes:
        are_wanted: Whether the buffer samples by errors.
    """

    def __init__(self) -> None:
        self.are_wanted = False
        self._kept: dict[StepKey, list[Tensor]] = {}

    def begin(self, batch: ReplayBatch) -> None:
        """Start with a batch, before its first minibatch."""
        self.are_wanted = batch.reprioritise is not None
        self._kept.clear()  # and stays the same dict, as traces notice another one

    def keep(self, step_key: StepKey, errors: Tensor) -> None:
        """Keep the errors of a minibatch; a loss calls it once for each sub-step.

        Args:
            step_key: The sub-step.
            errors: [B] errors of its acts; only their size counts.
        """
        if self.are_wanted:
            self._kept.setdefault(step_key, []).append(errors.detach().abs())

    def report(self, batch: ReplayBatch) -> None:
        """Give the errors of all minibatches of a batch to its buffer."""
        if batch.reprioritise is not None:
            batch.reprioritise({key: torch.stack(errors) for key, errors in self._kept.items()})
            self._kept.clear()
