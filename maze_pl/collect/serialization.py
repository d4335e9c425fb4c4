"""NumPy state as tensors and primitives, which is all that a checkpoint may hold, and back."""

from typing import Any

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, in nested dicts and lists.

    Raises:
        TypeError: Something else is in it, which a checkpoint that loads safely cannot hold.
    """
    if isinstance(state, dict):
        return {key: to_tensors(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [to_tensors(value) for value in state]
    if isinstance(state, np.ndarray):
        return torch.from_numpy(np.array(state, copy=True))
    if isinstance(state, np.generic):
        return state.item()
    if state is None or isinstance(state, bool | int | float | str | torch.Tensor):
        return state
    raise TypeError(f"state of type {type(state).__name__} cannot be saved; use arrays, numbers, strings, lists, dicts")


def from_tensors(state: Any) -> Any:
    """Replace tensors by arrays, in nested dicts and lists."""
    return apply_to_collection(state, torch.Tensor, lambda tensor: tensor.cpu().numpy().copy())
