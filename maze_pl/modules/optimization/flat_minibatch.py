"""Minibatches as flat lists of tensors, which traces take as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
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


def changed_in_place(minibatch: Mapping[StepKey, Samples], is_changed: Sequence[bool]) -> str | None:
    """Describe the first tensor of a minibatch that was changed in place; None if there is none.

    Args:
        minibatch: The minibatch.
        is_changed: For each of its tensors, in the order of `flatten`, whether it was changed.
    """
    changed = iter(is_changed)
    for step_key, samples in minibatch.items():
        names = _names(samples)
        for tensor in samples.tensors():
            if next(changed):
                return f"{names.get(id(tensor), 'a tensor')} of step key {step_key!r}"
    return None


def _names(samples: Samples) -> dict[int, str]:
    """Return the names of the tensors of a data class, by id."""
    names: dict[int, str] = {}
    if not is_dataclass(samples):
        return names
    for field in fields(samples):
        value = getattr(samples, field.name)
        if isinstance(value, Mapping):
            names |= {id(tensor): f"{field.name} {name!r}" for name, tensor in value.items()}
        names[id(value)] = field.name
    return names
