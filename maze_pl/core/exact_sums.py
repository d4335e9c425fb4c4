"""Sums and means that are rounded once, of any numbers."""

import math
from collections.abc import Sequence
from typing import Final

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
    except OverflowError:  # at least the sum of the first numbers is too large
        return exact_sum(_scaled(values)) * 2.0**-_SHIFT
    except ValueError:
        return math.nan


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
        small = _scaled(values)
        mean = exact_mean(small)  # as their sum is not too large
        # It may be rounded to slightly more than the largest number, which would be too large below.
        return math.ldexp(min(max(mean, min(small)), max(small)), -_SHIFT)
    except ValueError:
        return math.nan


def _scaled(values: Sequence[float]) -> list[float]:
    """Return numbers whose sum is not too large."""
    return [math.ldexp(value, _SHIFT) for value in values]
