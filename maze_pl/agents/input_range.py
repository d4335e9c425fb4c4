"""Range of the numbers that the networks of a policy can read.

Only observations of 64-bit numbers can exceed it, so others cost nothing here.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np

from maze_pl.agents.policy_step_parts import PolicyStepParts
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array


@runtime_checkable
class HasParts(Protocol):
    """A policy of networks."""

    def parts_of(self, step_key: StepKey) -> PolicyStepParts:
        """Return the networks of a sub-step and how they are used."""
        ...


@cache
def has_parts(kind: type) -> bool:
    """Return whether a class of policies has the method of `HasParts`."""
    return issubclass(kind, HasParts)  # asking a protocol for each act takes long


def largest_input(policy: object, step_key: StepKey) -> float:
    """Return the largest number that the networks of a sub-step can read, infinite for other policies.

    Larger ones, such as 1e39 in networks of 32-bit numbers, would become infinite in them.
    """
    if not has_parts(type(policy)):  # type: ignore[arg-type]  # mypy does not know that classes are hashable
        return math.inf
    return cast(HasParts, policy).parts_of(step_key).inputs.largest


def too_large(array: Array, largest: float) -> str | None:
    """Describe the first finite number that networks cannot read; None if there is none.

    Args:
        array: An observation of any shape and type.
        largest: Result of `largest_input`.

    Example:
        >>> too_large(np.array([1.0, -1e39]), float(np.finfo(np.float32).max))
        'holds -1e+39, but networks read numbers up to 3.4e+38 only; scale it in a wrapper'
    """
    if array.dtype != np.float64 or np.vdot(array, array) <= largest * largest:  # takes a fraction of the time
        return None
    beyond = (np.abs(array) > largest) & np.isfinite(array)
    if not beyond.any():
        return None
    return f"holds {array[beyond].flat[0]:g}, but networks read numbers up to {largest:.2g} only; scale it in a wrapper"


def unreadable(policy: object, step_key: StepKey, observation: Mapping[str, Array]) -> str | None:
    """Describe the first observation that the networks of a policy cannot read; None if they can read all.

    Args:
        policy: The policy, with networks or without.
        step_key: The sub-step.
        observation: Name -> array of any shape.
    """
    largest: float | None = None
    for name, array in observation.items():
        if array.dtype != np.float64:
            continue
        largest = largest_input(policy, step_key) if largest is None else largest
        if fault := too_large(array, largest):
            return f"observation {name!r} {fault}"
    return None
