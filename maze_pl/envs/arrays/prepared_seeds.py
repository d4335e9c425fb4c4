"""Seeds that come with the generators that they start, computed ahead for many episodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maze_pl.core.seed_sequences import words_of
from maze_pl.envs.arrays.pcg64 import Wide, seeded
from maze_pl.envs.structured_env import Array


class PreparedSeeds(np.ndarray):
    """Integers [n] that remember how to look up the generators that they start.

    Arrays that are made from it, such as parts and copies, are ordinary seeds: they look up nothing.
    """

    _look_up: Callable[[Array], tuple[Wide, Wide] | None] | None = None

    @classmethod
    def of(cls, seeds: Array, look_up: Callable[[Array], tuple[Wide, Wide] | None]) -> PreparedSeeds:
        """Prepare seeds.

        Args:
            seeds: [n] int64.
            look_up: Function of the seeds that returns state and increment [n] of their generators; None if the
                seeds are no longer those that were prepared.
        """
        prepared = seeds.view(cls)
        prepared._look_up = look_up
        return prepared


def started_generators(seeds: Sequence[int] | np.ndarray[Any, Any]) -> tuple[Wide, Wide]:
    """Return state and increment [n] of the generators that NumPy seeds with these numbers.

    Args:
        seeds: [n] integers of any size, at least 0.

    Raises:
        ValueError: A seed is negative.
        TypeError: A seed is not an integer.
    """
    if isinstance(seeds, PreparedSeeds) and seeds._look_up is not None:
        found = seeds._look_up(seeds)
        if found is not None:
            return found
    return seeded(*words_of(seeds))
