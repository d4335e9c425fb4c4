"""Base class of writers, which receive recorded episodes."""

from abc import ABC, abstractmethod
from typing import ClassVar

from maze_pl.envs.trajectory_record import Trajectory


class TrajectoryWriter(ABC):
    """Receives recorded episodes; configurations name it by its class path.

    Attributes:
        needs_frames: Whether episodes must include a picture of each state.
    """

    needs_frames: ClassVar[bool] = False

    @abstractmethod
    def write(self, record: Trajectory) -> None:
        """Receive an episode that has ended, or was abandoned after at least one step."""

    def close(self) -> None:  # noqa: B027  # optional hook
        """Complete what was written; more episodes may follow. Does nothing by default."""
