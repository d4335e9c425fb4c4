"""Numbers and texts of Python in the containers and objects that an object holds."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.envs.arrays.array_checks import ArrayChecks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_events import ArrayEvents
from maze_pl.envs.arrays.nested_arrays import VALUES, array_types, is_container, parts_of
from maze_pl.envs.arrays.random_streams import RandomStreams

GENERATORS: Final = (np.random.Generator, np.random.RandomState, random.Random)
"""Random generators of one stream."""

SKIPPED: Final = (ArrayEnv, ArrayEvents, ArrayChecks, spaces.Space, logging.Logger, logging.Handler)
"""Classes of objects that are not searched."""

_MOST_ENTRIES: Final = 20_000  # of an attribute that are read


def nested_numbers(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return digests of the numbers and texts in the containers and objects among some attributes.

    Of each attribute, only the first 20,000 entries are read.

    Args:
        attributes: Name -> value. Those that are numbers or texts are left out.

    Returns:
        Name of a container, for its length and all numbers in it, or of a number in an object -> digest.
    """
    seen: set[int] = set()
    digests: dict[str, int] = {}
    for name, value in attributes.items():
        if not isinstance(value, VALUES):
            digests.update(_digests_below(name, value, seen))
    return digests


def _digests_below(name: str, value: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield names and digests of the numbers and texts in the containers and objects below an attribute."""
    skipped = (*array_types(), RandomStreams, *GENERATORS, *SKIPPED)
    n_left = _MOST_ENTRIES
    waiting = [(name, value)]
    while waiting and n_left > 0:
        name, value = waiting.pop()
        if id(value) in seen or isinstance(value, skipped):
            continue
        seen.add(id(value))
        parts = parts_of(value)
        n_left -= 1 + len(parts)
        values = {part: child for part, child in parts.items() if isinstance(child, VALUES)}
        numbers = {part: child for part, child in values.items() if child is not None}  # None may wait for an object
        if isinstance(value, set | frozenset):
            yield name, hash((len(value), *sorted(map(repr, numbers.values()))))
        elif is_container(value):
            yield name, hash((len(value), repr(numbers)))
        else:
            for part, child in numbers.items():
                yield f"{name}.{part}", hash(repr(child))
        waiting.extend((f"{name}.{part}", child) for part, child in parts.items() if part not in values)
