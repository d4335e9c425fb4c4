"""Arrays and values of an episode document, as JSON."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_SMALLEST_DEFLATED = 1024
"""Smallest size in bytes of an array that is compressed; short ones would not become much smaller."""
_INT32 = np.iinfo(np.int32)
_SAFE_INTEGER = 2**53
"""Exclusive upper bound of the integers that JavaScript represents exactly."""


def encoded(values: Any) -> dict[str, Any]:
    """Encode numbers as an array of an episode document.

    Booleans and bytes become `uint8`, other integers `int32` where they fit, and floats `float32`.

    Args:
        values: Numbers of any shape.

    Example:
        >>> encoded([1.0, 2.0])
        {'dtype': 'float32', 'shape': [2], 'encoding': 'raw', 'data': 'AACAPwAAAEA='}
    """
    array = _portable(np.asarray(values))
    content = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    encoding = "raw"
    if len(content) >= _SMALLEST_DEFLATED:
        content = zlib.compress(content)
        encoding = "deflate"
    text = base64.b64encode(content).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "encoding": encoding, "data": text}


def decoded(content: Mapping[str, Any]) -> Array:
    """Return the array that `encoded` has encoded."""
    data = base64.b64decode(content["data"])
    if content["encoding"] == "deflate":
        data = zlib.decompress(data)
    dtype = np.dtype(content["dtype"]).newbyteorder("<")
    return np.frombuffer(data, dtype).reshape(content["shape"])


def _portable(array: Array) -> Array:
    """Convert an array to one of the types of an episode document."""
    if array.dtype.kind == "b" or array.dtype == np.uint8:
        return array.astype(np.uint8)
    if array.dtype.kind in "iu":
        is_small = not array.size or (array.min() >= _INT32.min and array.max() <= _INT32.max)
        return array.astype(np.int32 if is_small else np.float64)
    return array.astype(np.float32)


def plain(value: Any) -> Any:
    """Convert a value to JSON: texts, numbers, lists and mappings; anything else to text.

    Numbers that JSON does not have, and integers that JavaScript would round, become text, too.

    Example:
        >>> plain({"size": (4, 3), "cost": float("inf"), "kind": np.int8(2)})
        {'size': [4, 3], 'cost': 'inf', 'kind': 2}
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(part) for part in value]
    return str(value)


def finite(number: float | None) -> float | None:
    """Return a number if it is finite, None otherwise."""
    return float(number) if number is not None and np.isfinite(number) else None
