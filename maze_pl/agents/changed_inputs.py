"""Detection of networks that change their inputs in place, and with them the data that is learned from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from maze_pl.core.actor_id import StepKey


def versions_of(tensors: Iterable[Tensor]) -> list[int]:
    """Return the numbers of changes in place of some tensors; 0 where torch does not count them."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def refuse_changes(inputs: Mapping[str, Tensor], versions: Sequence[int], network: str, step_key: StepKey) -> None:
    """Refuse a network that has changed an input in place.

    Args:
        inputs: Its inputs by name.
        versions: Their versions before it was evaluated, see `versions_of`.
        network: Name of the network for the message.
        step_key: The sub-step.

    Raises:
        ValueError: An input has another version.
    """
    for name, before, after in zip(inputs, versions, versions_of(inputs.values()), strict=True):
        if before != after:
            fault = f"{network} changes the observation {name!r} of sub-step {step_key!r} in place"
            remedy = "write x = x * 0.9 for x *= 0.9 or x.mul_(0.9), or change a clone"
            raise ValueError(f"{fault}, and with it the data that is learned from: {remedy}")
