"""Comparisons that decide whether a recorded environment step may be used for a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

Numbers = Mapping[str, bool | int | float | str]
"""Values of Python by the name of their attribute."""

_KINDS: Final = (int, float, str)  # a tuple, as unions are slow; bool is a kind of int


def addresses_of(policy: Any) -> list[int]:
    """Return the identity of a policy, and the addresses of its tensors."""
    addresses = [id(policy)]
    if isinstance(policy, nn.Module):
        addresses += [tensor.data_ptr() for tensor in (*policy.parameters(), *policy.buffers())]
    return addresses


def buffers_of(policy: Any) -> dict[str, Tensor]:
    """Return the buffers of a policy, which may change when it acts, by name."""
    if not isinstance(policy, nn.Module):
        return {}
    return {f"buffer {name!r} of the policy": buffer for name, buffer in policy.named_buffers()}


def numbers_of_policy(policy: Any) -> Numbers:
    """Return the attributes of a policy and of its modules that are numbers or texts of Python.

    A graph has the values that they had when it was recorded.
    """
    numbers: dict[str, bool | int | float | str] = {}
    modules = policy.named_modules() if isinstance(policy, nn.Module) else [("", policy)]
    for place, module in modules:
        for name, value in getattr(module, "__dict__", {}).items():
            if isinstance(value, _KINDS):
                numbers[f"{place}.{name}" if place else name] = value
    return numbers


def differing_number(first: Numbers, second: Numbers) -> str | None:
    """Return the name of the first value that differs or is missing, None if there is none.

    NaN equals NaN.
    """
    for name in (*first, *second):
        one, other = first.get(name), second.get(name)
        are_nan = one != one and other != other
        if one != other and not are_nan:
            return name
    return None


def differing_tensor(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that differs by more than rounding; None for no tensor."""
    for name, tensor in first.items():
        if not torch.equal(tensor, second[name]) and not _is_close(tensor, second[name]):
            return name
    return None


def _is_close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first.double(), second.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
