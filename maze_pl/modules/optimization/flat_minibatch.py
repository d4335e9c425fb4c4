"""Minibatches as flat lists of tensors, which traces take as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from torch import Tensor

from maze_pl.core.actor_id import StepKey


class Samples(Protocol):
    """Data of one step key in a minibatch, as named tensors in a fixed order."""

    def tensors(self) -> list[Tensor]:
        """List all tensors."""
        ...

    def with_tensors(self, tensors: Iterable[Tensor]) -> Samples:
        """Return a copy with other tensors: the next of an iterator, ordered as in `tensors()`."""
        ...

    @property
    def structure(self) -> tuple[object, ...]:
        """All fields that are not tensors."""
        ...


def is_flat(minibatch: Any) -> bool:
    """True if a minibatch can be flattened into tensors."""
    return isinstance(minibatch, dict) and all(hasattr(part, "with_tensors") for part in minibatch.values())


def flatten(
    minibatch: Mapping[StepKey, Samples],
) -> tuple[list[Tensor], Callable[[Iterable[Tensor]], dict[StepKey, Samples]], tuple[object, ...]]:
    """Flatten a minibatch into a list of tensors.

    Returns:
        The tensors, a function that rebuilds a minibatch from such tensors, and all fields that are
        not tensors.
    """
    tensors: list[Tensor] = []
    for samples in minibatch.values():
        tensors += samples.tensors()
    structure = tuple((step_key, samples.structure) for step_key, samples in minibatch.items())

    def rebuild(values: Iterable[Tensor]) -> dict[StepKey, Samples]:
        rest = iter(values)
        return {step_key: samples.with_tensors(rest) for step_key, samples in minibatch.items()}

    return tensors, rebuild, structure
