"""Numbers and texts of Python in the containers and objects that an object holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from gymnasium import spaces

from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_events import ArrayEvents
from maze_pl.envs.arrays.array_reward_watch import ArrayRewardWatch
from maze_pl.envs.arrays.first_observations import FirstObservations
from maze_pl.envs.arrays.nested_arrays import VALUES, is_container, walked

SKIPPED: Final = (
    ArrayEnv,
    ArrayEvents,
    ArrayChecks,
    ArrayRewardWatch,
    FirstObservations,
    spaces.Space,
    logging.Logger,
    logging.Handler,
)
"""Classes of objects that are not searched."""


def nested_numbers(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return digests of the numbers and texts in the containers and objects among some attributes.

    Of each attribute, only the first 20,000 entries are read.

    Args:
        attributes: Name -> value. Those that are numbers or texts are left out.

    Returns:
        Name of a container, for its length and its numbers, or of a number in an object -> digest.
    """
    digests: dict[str, int] = {}
    for name, value, parts in walked(attributes, SKIPPED):
        values = {part: child for part, child in parts.items() if isinstance(child, VALUES)}
        if is_container(value):
            # None may wait for an object, which has its own numbers
            numbers = {part: child for part, child in values.items() if child is not None}
            is_set = isinstance(value, set | frozenset)
            content = sorted(map(repr, numbers.values())) if is_set else [repr(numbers)]
            digests[name] = hash((len(value), *content))
        else:
            for part, child in values.items():
                digests[f"{name}.{part}"] = hash(repr(child))
    return digests


def changed_nested_numbers(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the names under which two results of `nested_numbers` have different digests."""
    return sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
