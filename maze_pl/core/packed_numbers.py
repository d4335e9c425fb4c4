"""Compression of long lists of numbers or arrays in states of objects."""

import zlib
from collections import deque
from typing import Any, Final

import numpy as np

_MANY: Final = 64  # smallest number of values worth packing


def packed(values: list[Any] | deque[Any]) -> tuple[Any, ...] | None:
    """Compress many numbers or arrays of one kind; None for other values.

    Integers are stored as differences, which take few distinct values in counts and times.

    Returns:
        Arguments of `unpacked`: whether the values are arrays, their type, the shape of the array of
        all values, and its compressed bytes [n] uint8.
    """
    kinds = set(map(type, values))
    if len(values) < _MANY or len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind is np.ndarray:
        shapes = {(value.dtype, value.shape) for value in values}
        if len(shapes) != 1 or values[0].dtype.hasobject:
            return None
    elif kind is not int and kind is not float:
        return None
    try:
        array = np.array(values, np.int64 if kind is int else None)
    except OverflowError:
        return None
    differences = np.diff(array, prepend=np.int64(0)) if kind is int else array
    content = np.frombuffer(zlib.compress(differences.tobytes(), 1), np.uint8)
    return kind is np.ndarray, array.dtype.str, list(array.shape), content


def unpacked(are_arrays: bool, dtype: str, shape: list[int], content: Any) -> list[Any]:
    """Return the values that `packed` has compressed."""
    whole = zlib.decompress(np.asarray(content, np.uint8).tobytes())
    array = np.frombuffer(whole, np.dtype(dtype)).reshape(shape)
    if are_arrays:
        return [part.copy() for part in array]
    return list((array.cumsum() if array.dtype.kind == "i" else array).tolist())
