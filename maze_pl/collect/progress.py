"""Progress of environments in a rollout."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maze_pl.collect.storage import SegmentArrays
from maze_pl.core.policy import Array


class CollectedActs(NamedTuple):
    """Acts of one step key, one for each of some environments.

    Attributes:
        segment: Segment of the step key.
        places: Rows [n] and columns [n] of the acts in the segment.
        envs: [n] their environments.
    """

    segment: SegmentArrays
    places: tuple[Array, Array]
    envs: Array


class ActPlaces:
    """Places in the storage of the acts of each environment's current environment step.

    Args:
        n_envs: Number of environments.

    Attributes:
        key: [N, L] index of the step key of each act.
        row: [N, L] its row.
        slot: [N, L] its slot.
        n_acts: [N] number of acts so far; further entries are old.
    """

    def __init__(self, n_envs: int) -> None:
        self.key = np.zeros((n_envs, 1), np.int64)
        self.row = np.zeros((n_envs, 1), np.int64)
        self.slot = np.zeros((n_envs, 1), np.int64)
        self.n_acts = np.zeros(n_envs, np.int64)

    def add(self, envs: Array, key: Array, row: Array, slot: Array) -> None:
        """Add an act [n] in each of some environments [n]."""
        places = self.n_acts[envs]
        if places.max(initial=0) >= self.key.shape[1]:
            for name in ("key", "row", "slot"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros_like(array)], axis=1))
        self.key[envs, places] = key
        self.row[envs, places] = row
        self.slot[envs, places] = slot
        self.n_acts[envs] += 1


@dataclass(slots=True)
class Progress:
    """Progress of N environments in a rollout.

    Attributes:
        row: [N] the row that the next act belongs to.
        position: [N] acts in that row so far.
        completed: [N] completed environment steps.
        places: The acts of each environment's current environment step.
    """

    row: Array
    position: Array
    completed: Array
    places: ActPlaces
