"""Checks of the options of algorithms."""

import math
from typing import Any


def check_at_least(least: float, **values: float | None) -> None:
    """Raise unless every value that is not None is finite and at least `least`.

    Raises:
        ValueError: A value is smaller or not finite.
    """
    for name, value in values.items():
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"{name}={value} must be at least {least:g}" + (" and finite" if value > least else ""))


def check_positive(**values: float | None) -> None:
    """Raise unless every value that is not None is finite and greater than 0.

    Raises:
        ValueError: A value is not positive or not finite.
    """
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be greater than 0" + (" and finite" if value > 0 else ""))


def count_minibatches(batch_size: int, n_envs: int, n_rollout_steps: int) -> int:
    """Number of minibatches of a rollout, from options alone, so that all ranks step equally often.

    Raises:
        ValueError: The batch size does not divide the size of a rollout.
    """
    size = n_envs * n_rollout_steps
    if size % batch_size == 0:
        return size // batch_size
    below = next(factor for factor in range(min(batch_size, size), 0, -1) if size % factor == 0)
    above = next((factor for factor in range(batch_size, size + 1) if size % factor == 0), below)
    remedy = f"use a factor such as {below} or {above}" if above != below else f"use a factor such as {below}"
    raise ValueError(f"batch_size={batch_size} does not divide n_envs * n_rollout_steps = {size}; {remedy}")


def is_plain(value: Any) -> bool:
    """True if a value consists only of numbers, strings, lists and dicts, as checkpoints must."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)
