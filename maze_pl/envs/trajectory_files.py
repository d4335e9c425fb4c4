"""Writer of recorded episodes to files, which `read_trajectories` reads."""

import re

from maze_pl.core.provenance import shared_provenance
from maze_pl.envs.trajectory_record import Trajectory
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.records.framing import append_record, file_content
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.system.atomic_files import output_folder
from maze_pl.system.deferred_files import deferred_files


class TrajectoryFiles(TrajectoryWriter):
    """Writes episodes to files of their kind of record; see `read_trajectories`.

    Space records go to `<episode id>.spaces`, state records to `<episode id>.states`. With a name,
    all episodes are appended, as they end, to `<name>.spaces` and `<name>.states`; what was written
    stays readable if the process is killed or the disk is full.

    Space records that a command writes hold its provenance, which `maze-pl show` prints.

    A file of one episode is renamed in the background, as soon as its content is on the disk. All
    of them are there after `close`, and when this process exits.

    Args:
        folder: Folder of the files; relative to the run directory in `maze-pl fit`.
        name: Name of one file for all episodes; None for one file per episode.
    """

    def __init__(self, folder: str = "trajectories", name: str | None = None) -> None:
        self.folder = output_folder(folder)
        self.name = name

    def write(self, record: Trajectory) -> None:
        """Write the file or append to it."""
        name = self.name or re.sub(r"[^\w.-]", "_", record.episode_id)
        path = self.folder / f"{name}.{record.kind}"
        if self.name:
            append_record(path, record.kind, _body_of(record))
        else:
            deferred_files().write(path, file_content(record.kind, _body_of(record)))

    def close(self) -> None:
        """Wait until all files have their names."""
        deferred_files().flush()


def _body_of(record: Trajectory) -> bytes:
    """Return an episode as bytes; a space record holds the provenance of the running command."""
    if isinstance(record, SpacesTrajectoryRecord):
        return record.to_bytes(shared_provenance())
    return record.to_bytes()
