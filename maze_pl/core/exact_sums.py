"""Sums and means that are rounded once, of any numbers."""

import math
from collections.abc import Sequence

import numpy as np


def exact_sum(values: Sequence[float]) -> float:
    """Return a sum that is rounded only once; infinite if it is too large, NaN for infinities of both signs.

    Args:
        values: The numbers.

    Example:
        >>> exact_sum([1e100, 1.0, -1e100]), exact_sum([float("inf"), -float("inf")])
        (1.0, nan)
    """
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        with np.errstate(all="ignore"):
            return float(np.sum(values))


def exact_mean(values: Sequence[float]) -> float:
    """Return a mean, also of numbers whose sum is too large; NaN for infinities of both signs.

    Args:
        values: At least one number.

    Example:
        >>> exact_mean([1e308, 1.5e308])
        1.25e+308
    """
    n = len(values)
    try:
        return math.fsum(values) / n
    except OverflowError:
        return math.fsum(value / n for value in values)
    except ValueError:
        return math.nan
