"""Observations that hand-written rules read, number by number."""

from maze_pl.core.policy import Array, PolicyBatch


def rule_observation(batch: PolicyBatch, name: str, n_numbers: int, rule: object) -> Array:
    """Return the observation [B, n_numbers] that a rule reads.

    Args:
        batch: The actors and their observations.
        name: Name of the observation.
        n_numbers: Number of its entries.
        rule: The rule, for the message.

    Raises:
        ValueError: There is no such observation, or it has another shape.
    """
    known = {key: list(values.shape[1:]) for key, values in batch.observation.items()}
    if known.get(name) != [n_numbers]:
        reads = f"{type(rule).__name__} reads {n_numbers} numbers from the observation {name!r}"
        remedy = "leave out wrappers that rename, stack or reshape it"
        raise ValueError(f"{reads}, but the observations have the shapes {known}; {remedy}")
    return batch.observation[name]
