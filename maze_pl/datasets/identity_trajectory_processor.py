"""Trajectory processor that keeps all acts."""

from maze_pl.core.actor_id import StepKey
from maze_pl.datasets.trajectory_processors import TrajectoryProcessor
from maze_pl.records.columns import Columns, columns_of
from maze_pl.records.record_files import SpacesTrajectoryRecord


class IdentityTrajectoryProcessor(TrajectoryProcessor):
    """All acts, as they were recorded."""

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """See `columns_of`."""
        return columns_of(record)
