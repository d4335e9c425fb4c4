"""Values that losses record, and the numbers of a gradient step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey


class RecordedValue(NamedTuple):
    """A value that a loss has recorded: the sum of some numbers, and how many."""

    name: str
    value: Tensor | float
    step_key: StepKey | None
    n_summands: Tensor | float


class Described(NamedTuple):
    """Names and step keys of the values that a loss has recorded, and the counts of each.

    A count is None if it is a tensor, which differs between minibatches.
    """

    names: list[tuple[str, StepKey | None]]
    counts: list[float | None]

    @classmethod
    def of(cls, values: Sequence[RecordedValue]) -> Described:
        """Describe recorded values."""
        counts = [None if isinstance(item.n_summands, Tensor) else item.n_summands for item in values]
        return cls([(item.name, item.step_key) for item in values], counts)


def scalars_of(loss: Tensor, values: Sequence[RecordedValue]) -> list[Tensor]:
    """List the loss, the recorded values, and those counts that are tensors."""
    scalars = [loss]
    for item in values:
        value = item.value
        if type(value) is float or type(value) is int:
            value = torch.full((), value, device=loss.device)  # a copy would wait for the device
        elif not isinstance(value, Tensor) or value.device != loss.device:
            value = torch.as_tensor(value, device=loss.device)
        scalars.append(value)
    return scalars + [item.n_summands.to(loss.dtype) for item in values if isinstance(item.n_summands, Tensor)]


class Computed(NamedTuple):
    """A gradient that was written, and the numbers that came with it.

    Attributes:
        described: Statistics that the loss has recorded.
        numbers: [n] the norm of the gradient if `has_norm`, the loss, the recorded values, and
            the counts that `described` does not have.
        has_norm: True if the gradient was limited already; its norm before that comes first.
    """

    described: Described
    numbers: Tensor
    has_norm: bool

    @property
    def first(self) -> int:
        """Index of the first recorded value in `numbers`."""
        return 2 if self.has_norm else 1

    def counts(self, numbers: Sequence[float], n_steps: int) -> list[float]:
        """Return the count of each recorded value, summed over some steps.

        Args:
            numbers: The sum of `numbers` over these steps, which have the same description.
            n_steps: Number of steps.
        """
        varying = iter(numbers[self.first + len(self.described.names) :])
        return [next(varying) if count is None else n_steps * count for count in self.described.counts]


class Evaluated(NamedTuple):
    """A loss that was computed, without its gradient.

    Attributes:
        loss: A scalar.
        values: Values that the loss has recorded.
    """

    loss: Tensor
    values: Sequence[RecordedValue]
