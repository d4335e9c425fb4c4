"""Values of events of any kind in arrays: numbers and texts of one shape, and objects where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from maze_pl.core.histogram import NUMBER_KINDS
from maze_pl.envs.structured_env import Array


def objects_of(values: Sequence[Any] | Array) -> Array:
    """Return values as objects, [n]: Python's numbers and texts, arrays, or anything else."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values.astype(object, copy=False)
    objects = np.empty(len(values), object)
    for place, value in enumerate(values):
        objects[place] = value
    return objects


def common_dtype(first: Array, second: Array) -> np.dtype[Any] | None:
    """Return the type that holds the values of two arrays, [n, ...] and [m, ...]; None if they must become objects.

    Numbers do not become texts, and arrays of different shapes are not stacked.
    """
    if first.shape[1:] != second.shape[1:]:
        return None
    if first.dtype == second.dtype:
        return first.dtype
    kinds = {first.dtype.kind, second.dtype.kind}
    return np.promote_types(first.dtype, second.dtype) if kinds <= set(NUMBER_KINDS) or kinds == {"U"} else None


def joined_values(parts: Sequence[Array]) -> Array:
    """Concatenate values of events; they become objects if they are not of one kind and shape.

    Args:
        parts: At least one array [n, ...].
    """
    return reduce(_joined, [part for part in parts if len(part)] or parts[:1])


def _joined(first: Array, second: Array) -> Array:
    """Concatenate the values of two arrays."""
    return np.concatenate(as_one_kind(first, second))


def as_one_kind(first: Array, second: Array) -> tuple[Array, Array]:
    """Return two arrays [n, ...] and [m, ...] with the same dtype and the same shape of an entry."""
    dtype = common_dtype(first, second)
    if dtype is None:
        return objects_of(first), objects_of(second)
    return first.astype(dtype, copy=False), second.astype(dtype, copy=False)


def narrowed(values: Array) -> Array:
    """Return objects, [n], as an array of numbers or texts if all of them are of one type and shape.

    Other arrays are returned as they are.
    """
    if values.dtype != object or values.ndim > 1 or not len(values):
        return values
    kinds = set(map(type, values))
    if kinds == {np.ndarray}:
        is_same = len({(array.shape, array.dtype) for array in values}) == 1
        return np.stack(values.tolist()) if is_same and values[0].dtype.kind in NUMBER_KINDS else values
    if kinds == {float} or kinds == {bool} or kinds == {str}:
        return np.array(values.tolist())
    if kinds == {int} and max(values) <= np.iinfo(np.int64).max and min(values) >= np.iinfo(np.int64).min:
        return values.astype(np.int64)
    return values
