"""Writer that lets recorded episodes keep their pictures."""

from maze_pl.envs.trajectory_record import Trajectory
from maze_pl.envs.trajectory_writer import TrajectoryWriter


class KeptFrames(TrajectoryWriter):
    """Requests a picture of each state in the kept episodes, and writes nothing."""

    needs_frames = True

    def write(self, record: Trajectory) -> None:
        """Do nothing: the recorder keeps the last episodes."""
