"""Distributions of observed numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

MOST_DISTINCT_VALUES: Final = 2048
"""Largest number of distinct values that `Histogram.coarsened` leaves as they are."""
NUMBER_KINDS: Final = "biuf"
"""Kinds of dtypes whose values are numbers: flags, integers and floats."""
_N_BINS: Final = 1024


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """Distribution of observed numbers. Prints as count and mean: `[len:281, μ:0.5]`.

    Attributes:
        values: [V] the distinct values, ascending.
        counts: [V] int64, number of observations of each value.
    """

    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, observed: Any) -> Self:
        """Make a histogram of a list of numbers, of an array of any shape, or of a list of arrays.

        Args:
            observed: The numbers. A histogram is returned as it is.

        Raises:
            TypeError: An entry is not a number.
        """
        if isinstance(observed, cls):
            return observed
        values, counts = np.unique(number_array(observed), return_counts=True)
        return cls(values, counts.astype(np.int64))

    @classmethod
    def merged(cls, parts: Sequence["Histogram"]) -> Self:
        """Merge histograms into one."""
        counts = np.concatenate([part.counts for part in parts])
        values, places = np.unique(np.concatenate([part.values for part in parts]), return_inverse=True)
        return cls(values, np.bincount(places, counts, len(values)).astype(np.int64))

    def coarsened(self) -> "Histogram":
        """Histogram of bounded size: more than 2,048 distinct values are put into at most 1,024 bins.

        Each bin is represented by the mean of its observations. Bins are of equal width, at most
        1/512 of the range, and bins of a wider range are unions of narrower ones, so that
        repeating this moves no observation by more than the width of one bin. The smallest and the
        largest value, infinities and NaN stay as they are.
        """
        if len(self.values) <= MOST_DISTINCT_VALUES:
            return self
        values = self.values.astype(np.float64)
        is_finite = np.isfinite(values)
        inner, counts = values[is_finite], self.counts[is_finite]
        exponent = math.frexp(inner[-1] / _N_BINS - inner[0] / _N_BINS)[1]
        width = math.ldexp(1.0, max(exponent, -1022))  # a power of two, so that narrow bins lie within wide ones
        bins = np.floor(inner / width)
        bins[0], bins[-1] = -np.inf, np.inf
        firsts = np.flatnonzero(np.diff(bins, prepend=np.nan) != 0)
        lasts = np.append(firsts[1:], len(inner)) - 1
        sums = np.add.reduceat(counts, firsts)
        means = np.add.reduceat(inner * (counts / np.repeat(sums, lasts - firsts + 1)), firsts)
        means = np.clip(means, inner[firsts], inner[lasts])  # undo rounding errors
        others, of_others = values[~is_finite], self.counts[~is_finite]
        order = np.argsort(np.concatenate([means, others]), kind="stable")
        return Histogram(np.concatenate([means, others])[order], np.concatenate([sums, of_others])[order])

    @property
    def count(self) -> int:
        """Number of observed numbers."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of the observed numbers; 0 if there are none."""
        if not self.count:
            return 0.0
        with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN, without a warning
            return float(np.dot(self.values.astype(np.float64), self.counts) / self.count)

    def __repr__(self) -> str:
        mean = f"{self.mean:.1f}" if abs(self.mean) >= 0.1 or self.mean == 0 else f"{self.mean:.3g}"
        return f"[len:{self.count}, μ:{mean}]"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return np.array_equal(self.values, other.values, equal_nan=True) and np.array_equal(self.counts, other.counts)


histogram = Histogram.of
"""Reduction that keeps the whole distribution; on the levels of steps and episodes, values are passed on."""


def number_array(values: Any) -> np.ndarray:
    """Convert numbers in any nesting to one array.

    Values of one shape are stacked `[n, ...]`, others flattened and joined.

    Raises:
        TypeError: An entry is not a number.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # values of different shapes
        array = np.concatenate([np.ravel(value) for value in values])
    if array.dtype.kind not in NUMBER_KINDS:
        raise TypeError(f"expected numbers, got values of dtype {array.dtype}, such as {np.ravel(array)[0]!r}")
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array
