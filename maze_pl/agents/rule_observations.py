"""Numbers that hand-written rules read from states or observations."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.policy import Array, PolicyBatch


def rule_observation(batch: PolicyBatch, name: str, n_numbers: int, rule: object) -> Array:
    """Return the numbers [B, n_numbers] that a rule reads, those of the environment if possible.

    The state of a gymnasium environment is its observation, or holds it by name. Wrappers change the observation
    of the batch, but not the state. If there are no states, or states of another kind, the observation is read.

    Args:
        batch: The actors, their observations, and states of the simulations if there are any.
        name: Name of the observation.
        n_numbers: Number of its entries.
        rule: The rule, for the message.

    Raises:
        ValueError: There is no such observation, or it has another shape.
    """
    rows = [_numbers_of(state, name, n_numbers) for state in batch.maze_state or ()]
    numbers = [row for row in rows if row is not None]
    if numbers and len(numbers) == len(rows):
        return np.stack(numbers)
    known = {key: list(values.shape[1:]) for key, values in batch.observation.items()}
    if known.get(name) != [n_numbers]:
        reads = f"{type(rule).__name__} reads {n_numbers} numbers from the observation {name!r}"
        remedy = "leave out wrappers that rename, stack or reshape it"
        raise ValueError(f"{reads}, but the observations have the shapes {known}; {remedy}")
    return batch.observation[name]


def _numbers_of(state: Any, name: str, n_numbers: int) -> Array | None:
    """Return the observation [n_numbers] float32 that a state is, or holds by name; None if it does not."""
    value = state.get(name) if isinstance(state, Mapping) else state
    if not isinstance(value, np.ndarray | list | tuple):
        return None
    try:
        numbers = np.asarray(value, np.float32)
    except (TypeError, ValueError):  # parts of different shapes, or not numbers
        return None
    return numbers if numbers.shape == (n_numbers,) else None
