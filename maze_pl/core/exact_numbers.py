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
    if dtype.kind == "f" or np.can_cast(given.dtype, dtype):
        return None
    with np.errstate(invalid="ignore"):
        changed = given.astype(dtype) != given
    return given[changed].tolist()[0] if np.any(changed) else None
