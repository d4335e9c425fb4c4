"""Flags of faults in rollouts on a device, which the host reads later."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def take_flags(flags: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of flags [N] by name, and lower the flags."""
    copies = {name: tensor.clone() for name, tensor in flags.items()}
    for tensor in flags.values():
        tensor.zero_()
    return copies


def join_flags(*parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return flags [N] by name that are raised if they are in any part."""
    together: dict[str, Tensor] = {}
    for flags in parts:
        together |= {name: tensor | together.get(name, tensor) for name, tensor in flags.items()}
    return together


def refuse_flagged(flagged: Mapping[str, Tensor], fault: str, first_env_index: int) -> None:
    """Raise ValueError if any flag [N] is raised.

    Args:
        flagged: What the flags are about -> flags.
        fault: The fault, for the message.
        first_env_index: Index of the first environment across all ranks and workers.
    """
    for name, flags in flagged.items():
        envs = flags.nonzero().flatten()
        if len(envs):
            raise ValueError(f"the {name} of environment {first_env_index + int(envs[0])} {fault}")


def flags_of_invalid(tensor: Tensor) -> Tensor:
    """Return for each environment whether any of its numbers is NaN or infinite.

    Args:
        tensor: [T, N, ...], floating point.

    Returns:
        [N] bool.
    """
    return torch.isfinite(tensor).transpose(0, 1).flatten(1).all(1).logical_not()
