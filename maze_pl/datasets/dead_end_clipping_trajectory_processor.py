"""Trajectory processor that drops the last steps of terminated episodes."""

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.records.columns import Columns, columns_of, taken
from maze_pl.records.record_files import SpacesTrajectoryRecord


class DeadEndClippingTrajectoryProcessor(TrajectoryProcessor):
    """Drops the last steps of terminated episodes, where the end could no longer be averted.

    An act of several environment steps (`StepSkipWrapper`) is dropped if any of them is. Truncated
    episodes, such as by a time limit, are left unchanged.

    Args:
        clip_k: Number of environment steps to drop at the end; one that the end of the episode cut
            short counts.

    Raises:
        ValueError: `clip_k` is negative.
    """

    def __init__(self, clip_k: int) -> None:
        if clip_k < 0:
            meaning = "the number of environment steps that are left out at the end"
            raise ValueError(f"clip_k={clip_k} must be at least 0, {meaning}")
        self.clip_k = clip_k

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """Return the acts before the dead end, possibly no acts at all."""
        columns = columns_of(record)
        if not record.terminated:
            return columns
        n_begun = int(record.env_time[-1]) + 1  # the end may have cut the last step short
        n_env_steps = max(record.last_env_time, n_begun)
        begins, step = np.unique(record.env_time, return_inverse=True)
        ends = np.append(begins[1:], n_env_steps)[step]  # an act may take several environment steps
        is_kept = ends <= n_env_steps - self.clip_k
        return {key: taken(columns[key], is_kept[record.key_index == index]) for index, key in enumerate(columns)}
