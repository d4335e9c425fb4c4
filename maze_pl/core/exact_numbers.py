"""Numbers that an integer type can hold."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def first_changed(given: Array, dtype: np.dtype[Any]) -> Any:
    """Return the first number that a conversion to integers would change, or None.

    NumPy wraps numbers that do not fit, and cuts fractions off, both in silence.

    Args:
        given: Numbers of any shape.
        dtype: The type; types of floats change nothing here, as rounding is expected of them.

    Example:
        >>> first_changed(np.array([1, 300]), np.dtype(np.uint8))
        300
        >>> first_changed(np.array([1.0, 2.0]), np.dtype(np.uint8)) is None
        True
    """
    if holds_all(dtype, given.dtype):
        return None
    return _first_changed(given, given, dtype)


def first_beyond(given: Array, dtype: np.dtype[Any]) -> Any:
    """Return the first number that lies beyond a type of integers, or None; fractions may be cut off.

    Args:
        given: Numbers of any shape.
        dtype: The type; types of floats hold all numbers here.

    Example:
        >>> first_beyond(np.array([1.5, 300.5]), np.dtype(np.uint8))
        300.5
    """
    if holds_all(dtype, given.dtype):
        return None  # without the pass over all numbers that cuts off fractions
    return _first_changed(given, np.trunc(given) if given.dtype.kind == "f" else given, dtype)


def overflow_of(given: Array, dtype: np.dtype[Any]) -> str | None:
    """Describe why a type of integers cannot hold numbers of an environment, or None if it can.

    Example:
        >>> overflow_of(np.array([256]), np.dtype(np.int8))
        'has the value 256, which its type int8 cannot hold; declare a space of type int64'
    """
    number = first_beyond(given, dtype)
    if number is None:
        return None
    return f"has the value {number}, which its type {dtype} cannot hold; declare a space of type {given.dtype}"


def holds_all(dtype: np.dtype[Any], given: np.dtype[Any]) -> bool:
    """True if a type holds all numbers of another type, but for the rounding of floats."""
    return dtype.kind == "f" or np.can_cast(given, dtype)


def _first_changed(given: Array, compared: Array, dtype: np.dtype[Any]) -> Any:
    """Return the first given number whose compared number a conversion would change, or None."""
    with np.errstate(invalid="ignore"):
        changed = compared.astype(dtype) != compared
    return given[changed].tolist()[0] if np.any(changed) else None
