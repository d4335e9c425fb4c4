"""Conversion between arrays and tensors: views for rollouts, copies for checkpoints."""

from typing import Any

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection

from maze_pl.core.spaces import mapped


def tensor_views(arrays: Any, n_rows: int | None = None) -> Any:
    """Make tensors that share the first rows of arrays in nested dicts, or all rows if None."""
    return mapped(lambda array: torch.from_numpy(array[:n_rows]), arrays)


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, in nested dicts and lists.

    Raises:
        TypeError: The state holds another type, which a weights-only checkpoint cannot hold.
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
    remedy = "use arrays, numbers, strings, lists, dicts"
    raise TypeError(f"state of type {type(state).__name__} cannot be saved; {remedy}")


def from_tensors(state: Any) -> Any:
    """Replace tensors by arrays, in nested dicts and lists."""
    return apply_to_collection(state, torch.Tensor, lambda tensor: tensor.cpu().numpy().copy())
