"""Conversion between arrays and tensors: views for rollouts, copies for checkpoints."""

from typing import Any

import numpy as np
import torch

from maze_pl.core.spaces import mapped

_KIND = "__kind__"  # marks dicts that stand for something else: a dtype, `scalar` or `tuple`


def tensor_views(arrays: Any, n_rows: int | None = None) -> Any:
    """Make tensors that share the first rows of arrays in nested dicts, or all rows if None."""
    return mapped(lambda array: torch.from_numpy(array[:n_rows]), arrays)


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors and NumPy's numbers by Python's, in nested dicts and lists.

    Arrays of texts or objects become lists with their dtype and shape, in dicts that `from_tensors` recognises.

    Raises:
        TypeError: The state holds another type, which a weights-only checkpoint cannot hold.
    """
    return _to_tensors(state, ())


def _to_tensors(state: Any, path: tuple[Any, ...]) -> Any:
    """Convert a part of a state, which lies at a path of keys and positions."""
    if isinstance(state, dict):
        return {key: _to_tensors(value, (*path, key)) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_to_tensors(value, (*path, place)) for place, value in enumerate(state)]
    if isinstance(state, np.ndarray):
        return _array_to_tensors(state, path)
    value = state.item() if isinstance(state, np.generic) else state
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _unsupported(f"a value of type {type(state).__name__}", path)


def _array_to_tensors(array: np.ndarray, path: tuple[Any, ...]) -> Any:
    """Convert an array: numbers to a tensor, texts and objects to a list."""
    if array.dtype.kind == "U":
        return {_KIND: array.dtype.str, "shape": list(array.shape), "values": array.reshape(-1).tolist()}
    if array.dtype.kind == "O":
        values = [_object_to_tensors(value, (*path, place)) for place, value in enumerate(array.reshape(-1))]
        return {_KIND: array.dtype.str, "shape": list(array.shape), "values": values}
    try:
        return torch.from_numpy(np.array(array, copy=True))
    except (TypeError, ValueError):  # the latter for another byte order
        raise _unsupported(f"an array of type {array.dtype}", path) from None


def _object_to_tensors(value: Any, path: tuple[Any, ...]) -> Any:
    """Convert an entry of an array of objects so that its types are restored, also NumPy's numbers and tuples."""
    if isinstance(value, np.generic):
        return {_KIND: "scalar", "value": _to_tensors(np.asarray(value), path)}
    if isinstance(value, dict):
        return {key: _object_to_tensors(part, (*path, key)) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_object_to_tensors(part, (*path, place)) for place, part in enumerate(value)]
        return {_KIND: "tuple", "values": parts} if isinstance(value, tuple) else parts
    return _to_tensors(value, path)


def _unsupported(came: str, path: tuple[Any, ...]) -> TypeError:
    """Return the error for a part of a state that cannot be saved."""
    where = f" {'.'.join(map(str, path))!r}" if path else ""
    remedy = "use arrays of numbers or texts, numbers, strings, lists, dicts"
    return TypeError(f"state{where} is {came}, which cannot be saved; {remedy}")


def from_tensors(state: Any) -> Any:
    """Replace tensors by arrays in nested dicts and lists, and restore what `to_tensors` made lists of."""
    if isinstance(state, torch.Tensor):
        return state.cpu().numpy().copy()
    if isinstance(state, list):
        return [from_tensors(value) for value in state]
    if not isinstance(state, dict):
        return state
    parts = {key: from_tensors(value) for key, value in state.items()}
    kind = parts.get(_KIND)
    if kind is None:
        return parts
    if kind == "scalar":
        return parts["value"][()]
    if kind == "tuple":
        return tuple(parts["values"])
    array: np.ndarray = np.empty(len(parts["values"]), np.dtype(kind))
    for place, value in enumerate(parts["values"]):
        array[place] = value
    return array.reshape(parts["shape"])


def on_host(state: Any) -> Any:
    """Replace tensors by arrays, and those of a single number by the number, in nested dicts and lists."""
    if isinstance(state, torch.Tensor):
        return state.cpu().numpy().copy() if state.dim() else state.item()
    if isinstance(state, dict):
        return {key: on_host(value) for key, value in state.items()}
    if isinstance(state, list):
        return [on_host(value) for value in state]
    return state
