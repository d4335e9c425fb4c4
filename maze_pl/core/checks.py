"""Validation of user-supplied options: numbers in their ranges, counts, time limits."""

import math
import os
from typing import Any

MOST = 2**31 - 1
MOST_EPISODES = 1_000_000  # of an evaluation, a rollout or a comparison
_LEAST_BYTES_OF_AN_ENVIRONMENT = 4096  # lower bound for an object with spaces and a random generator


def check_count(name: str, value: int, least: int, owner: str = "", most: int = MOST) -> None:
    """Refuse a count that is not an integer, too small or too large.

    Args:
        name: Name of the option.
        value: Its value.
        least: Smallest accepted value.
        owner: Owner of the option, such as " of an evaluator".
        most: Largest accepted value.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is too small or too large.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{owner} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}={value}{owner} must be at least {least}")
    if value > most:
        raise ValueError(f"{name}={value}{owner} must be at most {most}")


def check_room_for_environments(name: str, n_envs: int, owner: str = "") -> None:
    """Refuse more environments than fit into the machine's memory, before the first one is made.

    Args:
        name: Name of the option.
        n_envs: Number of environments.
        owner: Owner of the option, such as " of an evaluator".

    Raises:
        ValueError: Even the smallest environments would not fit.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = n_envs * _LEAST_BYTES_OF_AN_ENVIRONMENT
    if needed > available:
        amounts = f"{needed / 2**30:,.0f} GiB of memory, this machine has {available / 2**30:,.0f} GiB"
        raise ValueError(f"{name}={n_envs}{owner} environments take at least {amounts}; use fewer")


def check_seconds(name: str, value: float | None, owner: str = "") -> None:
    """Refuse a time limit that is not a positive number; None stands for no limit.

    Raises:
        TypeError: It is not a number.
        ValueError: It is not positive, or not finite.
    """
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}{owner} must be a number of seconds, not {type(value).__name__}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value}{owner} must be greater than 0 and finite, or null for no limit")


def check_at_least(least: float, **values: float | None) -> None:
    """Raise unless every value that is not None is finite and at least `least`.

    Raises:
        ValueError: A value is smaller or not finite.
    """
    for name, value in values.items():
        _check_number(name, value)
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"{name}={value} must be at least {least:g}" + (" and finite" if value > least else ""))


def check_not_negative(**values: float | None) -> None:
    """Raise unless every value that is not None is finite and not negative.

    Raises:
        ValueError: A value is negative or not finite.
    """
    check_at_least(0, **values)


def check_positive(**values: float | None) -> None:
    """Raise unless every value that is not None is finite and greater than 0.

    Raises:
        ValueError: A value is not positive or not finite.
    """
    for name, value in values.items():
        _check_number(name, value)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be greater than 0" + (" and finite" if value > 0 else ""))


def check_fraction(**values: float) -> None:
    """Raise unless every value lies in [0, 1].

    Raises:
        ValueError: A value lies outside.
    """
    for name, value in values.items():
        _check_number(name, value)
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}={value} must lie between 0 and 1")


def _check_number(name: str, value: object) -> None:
    """Refuse functions, such as schedules of options that are numbers, and texts.

    Raises:
        TypeError: It is one of them.
    """
    if callable(value) or isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be a number, not {type(value).__name__}")


def is_whole(number: float) -> bool:
    """True for a finite whole number, of any type.

    Example:
        >>> is_whole(3.0), is_whole(2.5), is_whole(float("inf"))
        (True, False, False)
    """
    return isinstance(number, int) or float(number).is_integer()


def is_plain(value: Any) -> bool:
    """True if a value consists only of numbers, strings, lists and dicts, as checkpoints must."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)
