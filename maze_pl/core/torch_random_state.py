"""State of the global random generators of torch, for computations that may be repeated."""

from __future__ import annotations

import torch
from torch import Tensor


def torch_random_state(device: torch.device) -> list[Tensor]:
    """Return the state of the global generators of torch, on the CPU and on `device`."""
    on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_device]


def restore_torch_random_state(states: list[Tensor], device: torch.device) -> None:
    """Restore the state returned by `torch_random_state`."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
