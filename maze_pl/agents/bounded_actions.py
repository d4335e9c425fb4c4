"""Continuous actions as fractions of their bounds, which is how critics read them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.policy import Array

READS_FRACTIONS: Final = "_reads_scaled_actions"
"""Buffer that says how a critic reads continuous heads. Critics of version 0.2.0 lack it, and read them as they are."""


def boxes_to_scale(heads: spaces.Dict) -> dict[str, spaces.Box]:
    """Return the boxes of an action space some of whose bounds are not -1 and 1, by head."""
    boxes = {}
    for head, space in heads.spaces.items():
        if isinstance(space, spaces.Box):
            centre, half_width = _centre_and_half_width(space.low, space.high)
            if (centre != 0).any() or (half_width != 1).any():
                boxes[head] = space
    return boxes


def fraction_of_bounds(action: Tensor, space: spaces.Box) -> Tensor:
    """Return (action - centre) / half width, which lies in [-1, 1]; components without finite bounds stay the same.

    Args:
        action: [B, *shape] actions of the space.
        space: The box.

    Example:
        >>> space = spaces.Box(np.array([0.0, -np.inf]), np.array([1000.0, np.inf]), dtype=np.float64)
        >>> fraction_of_bounds(torch.tensor([[750.0, 3.0]]), space)
        tensor([[0.5000, 3.0000]])
    """
    bounds = space.low.tobytes() + space.high.tobytes()
    dtype = action.dtype if action.is_floating_point() else torch.get_default_dtype()
    centre, half_width = _stored(bounds, space.low.dtype.str, space.low.shape, dtype, action.device)
    return (action - centre) / half_width


def complete_critic(tensors: dict[str, Any], prefix: str) -> None:
    """Add to the tensors of a critic of version 0.2.0 that it reads actions as they are.

    Args:
        tensors: Tensors by name, of this critic and of others.
        prefix: Beginning of the names of this critic's tensors.
    """
    name = prefix + READS_FRACTIONS
    if name not in tensors and any(other.startswith(prefix) for other in tensors):
        tensors[name] = torch.zeros(1, dtype=torch.int64)


def complete_critics(tensors: dict[str, Any], expected: Iterable[str]) -> None:
    """Add to the tensors of all critics of version 0.2.0 that they read actions as they are.

    Args:
        tensors: Tensors of a module of that version, or of a later one, by name.
        expected: Names of the tensors that a module has now.
    """
    for name in expected:
        if name.endswith(f".{READS_FRACTIONS}"):
            complete_critic(tensors, name.removesuffix(READS_FRACTIONS))


def _centre_and_half_width(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the centres and half widths [*shape] of a box, float64; 0 and 1 without finite bounds."""
    low, high = low.astype(np.float64), high.astype(np.float64)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    half_width = high / 2 - low / 2
    return low / 2 + high / 2, np.where(half_width > 0, half_width, 1.0)


@functools.cache  # never dropped, as graphs of a device read the tensors at their addresses
def _stored(
    bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Make the tensors of a box.

    Args:
        bounds: Bytes of the lowest, then of the highest values.
        stored: Type of these values, as `dtype.str`.
        shape: Shape of the box.
        dtype: Type of the tensors.
        device: Device of the tensors.
    """
    low, high = np.frombuffer(bounds, stored).reshape(2, *shape)
    centre, half_width = _centre_and_half_width(low, high)
    with torch.inference_mode(False):  # cached, and also used where gradients are computed
        return torch.from_numpy(centre).to(device, dtype), torch.from_numpy(half_width).to(device, dtype)
