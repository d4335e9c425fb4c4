"""Values of events as they were when the events were fired, whatever happens to them later."""

import copy
import sys
from types import FunctionType
from typing import Any, Final

import numpy as np

UNCHANGING: Final = frozenset(
    {
        *(float, int, bool, str, type(None), bytes, complex, type, FunctionType),
        *(np.float64, np.float32, np.float16, np.bool_),
        *(np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8),
    }
)
"""Types of values that cannot be changed in place; other types are looked at."""
_CONTAINERS: Final = (list, dict, set, bytearray)


def is_tensor(value: Any) -> bool:
    """True for tensors of torch, which need not be imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def copied(value: Any) -> Any:
    """Copy a value that could be changed in place: arrays, tensors, lists, dicts and sets, also within tuples.

    Objects of other classes stay the same objects.
    """
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        is_same = all(part is original for part, original in zip(parts, value, strict=True))
        return value if is_same else tuple.__new__(kind, parts)  # also for named tuples
    if kind is list:
        return [copied(part) for part in value]
    if kind is dict:
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, _CONTAINERS):  # sets, and classes derived from containers
        return copy.copy(value)
    return value.detach().clone() if is_tensor(value) else value


def with_copies(attributes: dict[str, Any]) -> dict[str, Any]:
    """Replace, in the attributes of an event, values that could be changed in place by copies.

    Returns:
        The same dict.
    """
    for name, value in attributes.items():
        attributes[name] = copied(value)
    return attributes


def plain(value: Any) -> Any:
    """Convert numbers of NumPy and torch to Python's (float32 sums lose digits), and tensors to arrays.

    Arrays stay the same objects, and tensors on the host share their memory.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value if value.ndim else value.item()
    if is_tensor(value):
        return array_of(value) if value.ndim else value.item()
    return value


def array_of(tensor: Any) -> np.ndarray:
    """Array with the numbers of a tensor; one on the host shares its memory."""
    values = tensor.detach().cpu()
    is_half = values.is_floating_point() and values.dtype.itemsize == 2  # NumPy does not know bfloat16
    array: np.ndarray = values.float().numpy() if is_half else values.numpy()
    return array


def detached(value: Any) -> Any:
    """Copy a value that could be changed in place; then as `plain`."""
    return plain(copied(value))


def widened(values: Any) -> Any:
    """Convert numbers of narrow types to 64 bits, so that sums neither overflow nor lose digits.

    Flags stay flags, which count as 0 and 1 in sums.

    Args:
        values: An array, or a list that may hold arrays; anything else in it stays as it is.
    """
    if isinstance(values, np.ndarray):
        return _wide(values)
    if np.ndarray not in set(map(type, values)):
        return values
    return [_wide(value) if type(value) is np.ndarray else value for value in values]


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        return array.astype(np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize < 8:
        return array.astype(np.int64)
    return array
