"""Histogram: how often each value occurred, small to print and complete enough to draw."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """Distribution of observed numbers. Prints as count and mean: `[len:281, μ:0.5]`.

    Attributes:
        values: [V] the distinct values, ascending.
        counts: [V] int64, how often each of them was observed.
    """

    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, observed: Any) -> Self:
        """Histogram of numbers in any nesting: a list of numbers, an array of any shape, or a list of arrays.

        Raises:
            TypeError: Something in it is not a number.
        """
        array = number_array(observed)
        values, counts = np.unique(array, return_counts=True)
        return cls(values, counts.astype(np.int64))

    @property
    def count(self) -> int:
        """How many numbers were observed."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of what was observed; 0 if nothing was."""
        if not self.count:
            return 0.0
        with np.errstate(invalid="ignore"):  # infinities of both signs have no mean: nan, quietly
            return float(np.dot(self.values.astype(np.float64), self.counts) / self.count)

    def __repr__(self) -> str:
        mean = f"{self.mean:.1f}" if abs(self.mean) >= 0.1 or self.mean == 0 else f"{self.mean:.3g}"
        return f"[len:{self.count}, μ:{mean}]"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return np.array_equal(self.values, other.values, equal_nan=True) and np.array_equal(self.counts, other.counts)


def histogram(values: Any) -> Histogram:
    """Reduction that keeps the whole distribution; on the step and the episode level it passes the values on."""
    return Histogram.of(values)


def number_array(values: Any) -> np.ndarray:
    """Numbers in any nesting as one array: values of one shape are stacked `[n, ...]`, others flattened and joined.

    Raises:
        TypeError: Something in it is not a number.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # values of different shapes
        array = np.concatenate([np.ravel(value) for value in values])
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected numbers, got values of dtype {array.dtype}, such as {np.ravel(array)[0]!r}")
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array
