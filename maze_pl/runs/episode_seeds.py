"""Given seeds of episodes, such as those of a fixed set of instances."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from maze_pl.core.checks import MOST_EPISODES

_RANGE: Final = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
_LARGEST: Final = 2**63 - 1


def listed_seeds(given: Sequence[int] | str) -> list[int]:
    """Return seeds that are given as a list or as a range.

    Args:
        given: The seeds, or a text such as `0-39` for the first and the last of consecutive ones.

    Raises:
        ValueError: It is neither, or there is no seed, or one is negative or too large.

    Example:
        >>> listed_seeds("7-9")
        [7, 8, 9]
    """
    expected = "expected whole numbers from 0 on, as in [0, 3, 4], or a range, as in 0-39"
    if isinstance(given, str):
        match = _RANGE.fullmatch(given)
        if match is None:
            raise ValueError(f"episode_seeds={given!r}: {expected}")
        first, last = map(int, match.groups())
        if not first <= last < first + MOST_EPISODES:
            raise ValueError(f"episode_seeds={given!r} must have from 1 to {MOST_EPISODES} seeds")
        given = range(first, last + 1)
    try:
        listed = list(given)
    except TypeError as error:  # a single number
        raise ValueError(f"episode_seeds={given!r}: {expected}") from error
    seeds = []
    for seed in listed:
        try:
            seeds.append(int(seed))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"episode_seeds has {seed!r}: {expected}") from error
        is_whole = seed == seeds[-1] and not isinstance(seed, bool | np.bool_)
        if not is_whole or not 0 <= seeds[-1] <= _LARGEST:
            raise ValueError(f"episode_seeds has {seed!r}: {expected}")
    if not seeds:
        raise ValueError("episode_seeds is empty; name a seed for each episode, or leave it out")
    return seeds
