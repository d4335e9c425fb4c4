"""Observations as arrays of the type and shape that a graph expects."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_LARGEST = np.finfo(np.float32).max  # networks compute in float32


class Input:
    """Converts an observation, and refuses values that the graph cannot be sure to compute.

    Args:
        name: Its name.
        space: Its space, as described in a manifest.
        masked: Head -> number of options of each choice, for the heads that it masks.
    """

    def __init__(self, name: str, space: dict[str, Any], masked: dict[str, list[int]] | None = None) -> None:
        self.name = name
        self.dtype, self.shape, low, high = read_space(space)
        self._largest = np.inf if space.get("clipped") else _LARGEST  # the graph clips it first
        self._bounds = None if space["type"] == "box" else (low, high)  # of integers
        if masked:
            self._bounds = (0, 1)
        # The mask of bits has one entry for the two options of each; all bits may be 0.
        complete = [(head, sizes) for head, sizes in (masked or {}).items() if sum(sizes) == np.prod(self.shape)]
        self._first_options = {head: np.cumsum([0, *sizes])[:-1] for head, sizes in complete}

    def __call__(self, value: Any, needs_options: bool = True) -> tuple[Array, bool]:
        """Return the array [B, *shape], and whether the value was a batch.

        Masks may leave choices without an option if `needs_options` is False.
        """
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            value = converted(value, self.dtype, self.shape, f"observation {self.name!r}")
        is_batch = value.shape != self.shape
        array: Array = value if is_batch else value[None]
        if array.shape[1:] != self.shape or array.ndim != len(self.shape) + 1 or not len(array):
            raise ValueError(f"observation {self.name!r} has shape {array.shape}, expected {self.shape}, or a batch")
        # counting is faster than all()
        if self.dtype.kind == "f" and np.count_nonzero(np.abs(array) <= self._largest) < array.size:
            raise ValueError(f"observation {self.name!r} has values that are not finite in float32")
        if self._bounds is not None:
            low, high = self._bounds
            fits = (array >= low) & (array <= high) & (array == np.floor(array))
            if not fits.all():
                place = tuple(np.argwhere(~fits)[0].tolist()[1:])  # of the first wrong value
                low, high = (np.broadcast_to(bound, self.shape)[place] for bound in self._bounds)
                where = f" in element {', '.join(map(str, place))}" if place else ""
                raise ValueError(f"observation {self.name!r} must be integers from {low} to {high}{where}")
        if needs_options:
            self._require_options(array, is_batch)
        return array, is_batch

    def _require_options(self, mask: Array, is_batch: bool) -> None:
        """Raise ValueError if a mask [B, *shape] allows no option of a choice."""
        for head, first in self._first_options.items():
            has_option = np.maximum.reduceat(mask.reshape(len(mask), -1), first, axis=1)  # [B, n]
            if np.count_nonzero(has_option) != has_option.size:
                row, number = np.argwhere(has_option == 0)[0].tolist()
                choice = f"choice {number} of {head!r}" if len(first) > 1 else repr(head)
                place = f" in row {row}" if is_batch else ""
                raise ValueError(f"observation {self.name!r} allows no option of {choice}{place}")


def inputs_of(step: Mapping[str, Any]) -> list[Input]:
    """Return the observations of a sub-step, as described in a manifest."""
    masked: dict[str, dict[str, list[int]]] = {}  # observation -> head -> options of each choice
    for head, name in step["masks"].items():
        space = step["actions"].get(head, {})
        sizes = np.ravel(space.get("nvec", space.get("n", []))).tolist()
        masked.setdefault(name, {})[head] = step["heads"][head]["choices"] if head in step["heads"] else sizes
    return [Input(name, space, masked.get(name)) for name, space in step["observations"].items()]


def converted(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> Array:
    """Return an array of a type; refuse what is not a number, and integers that it cannot hold."""
    try:
        given = np.asarray(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):  # ragged, or with gradients
        given = np.empty(0, object)
    if given.dtype.kind in "fiub":
        with np.errstate(invalid="ignore", over="ignore"):
            array = given.astype(dtype)
        if dtype.kind == "f" or np.array_equal(array, given):
            return array
    raise ValueError(f"{name} must be {dtype} of shape {shape}, not {value!r:.80}")


def read_space(space: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...], Any, Any]:
    """Return type, shape, lowest and highest values of a space in a manifest."""
    kind = space["type"]
    if kind == "box":
        return np.dtype(space["dtype"]), tuple(space["shape"]), -np.inf, np.inf
    if kind in ("discrete", "multi_discrete"):
        start, sizes = np.array(space.get("start", 0)), np.array(space.get("nvec", space.get("n")))
        return np.dtype(np.int64), sizes.shape, start, start + sizes - 1
    if kind == "multi_binary":
        return np.dtype(np.int8), tuple(space["shape"]), 0, 1
    raise ValueError(f"unknown space type {kind!r}")
