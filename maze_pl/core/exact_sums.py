"""Sums and means that are rounded once, of any numbers."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

_SHIFT: Final = -64
"""Power of 2 by which large numbers are scaled, so that as many as there may be can be added."""


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
        small = [math.ldexp(value, _SHIFT) for value in values]  # their sum is not too large
        mean = math.fsum(small) / n
        return math.ldexp(min(max(mean, min(small)), max(small)), -_SHIFT)
    except ValueError:
        return math.nan
