"""Validation of user-supplied counts and time limits."""

import math
import os

MOST = 2**31 - 1
_LEAST_BYTES_OF_AN_ENVIRONMENT = 4096  # lower bound for an object with spaces and a random generator


def require_count(name: str, value: int, least: int, whose: str = "", most: int = MOST) -> None:
    """Refuse a count that is not an integer, too small or too large.

    Args:
        name: Name of the option.
        value: Its value.
        least: Smallest accepted value.
        whose: Owner of the option, such as " of an evaluator".
        most: Largest accepted value.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is too small or too large.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{whose} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}={value}{whose} must be at least {least}")
    if value > most:
        raise ValueError(f"{name}={value}{whose} must be at most {most}")


def require_room_for_environments(name: str, n_envs: int, whose: str = "") -> None:
    """Refuse more environments than fit into the machine's memory, before the first one is made.

    Args:
        name: Name of the option.
        n_envs: Number of environments.
        whose: Owner of the option, such as " of an evaluator".

    Raises:
        ValueError: Even the smallest environments would not fit.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = n_envs * _LEAST_BYTES_OF_AN_ENVIRONMENT
    if needed > available:
        amounts = f"{needed / 2**30:,.0f} GiB of memory, this machine has {available / 2**30:,.0f} GiB"
        raise ValueError(f"{name}={n_envs}{whose} environments take at least {amounts}; use fewer")


def require_seconds(name: str, value: float | None, whose: str = "") -> None:
    """Refuse a time limit that is not a positive number; None stands for no limit.

    Raises:
        TypeError: It is not a number.
        ValueError: It is not positive, or not finite.
    """
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{whose} must be a number of seconds, not {type(value).__name__}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}{whose} must be greater than 0 and finite, or null for no limit")
