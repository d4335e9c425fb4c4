"""Progress of environments in a rollout."""

from dataclasses import dataclass
from typing import NamedTuple

from maze_pl.collect.storage import SegmentArrays
from maze_pl.core.policy import Array


class ActPlace(NamedTuple):
    """Place of an act in the storage: index of its step key, row and slot."""

    key: int
    row: int
    slot: int


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


@dataclass(slots=True)
class Progress:
    """Progress of N environments in a rollout.

    Attributes:
        row: [N] the row that the next act belongs to.
        position: [N] acts in that row so far.
        completed: [N] completed environment steps.
        places: For each environment, the acts of its current environment step.
    """

    row: Array
    position: Array
    completed: Array
    places: list[list[ActPlace]]
