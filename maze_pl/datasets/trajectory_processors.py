"""Base class of trajectory processors."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.records.columns import Columns
from maze_pl.records.record_files import SpacesTrajectoryRecord

Array = np.ndarray[Any, np.dtype[Any]]


class TrajectoryProcessor(ABC):
    """Turns episodes into training data; configurations name it by its class path.

    Example:
        >>> class EveryOther(TrajectoryProcessor):
        ...     def process(self, record):
        ...         return {key: taken(columns, slice(None, None, 2)) for key, columns in columns_of(record).items()}
    """

    @abstractmethod
    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """Return the acts of an episode to learn from.

        Returns:
            For each sub-step, the fields of `TransitionBatch` as arrays `[n, ...]`; the same fields
            for each episode.
        """
