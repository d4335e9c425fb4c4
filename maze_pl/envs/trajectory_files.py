"""Writer of recorded episodes to files, which `read_trajectories` reads."""

from functools import partial
from pathlib import Path

from maze_pl.core.provenance import shared_provenance
from maze_pl.envs.episode_files import N_DIGEST_BYTES, EpisodeFiles, decisions_digest, is_part_of
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, Trajectory
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.records.framing import append_record, file_content
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Choices
from maze_pl.system.atomic_files import output_folder
from maze_pl.system.deferred_files import deferred_files


class TrajectoryFiles(TrajectoryWriter):
    """Writes episodes to files of their kind of record; see `read_trajectories`.

    Space records go to `<episode id>.spaces`, state records to `<episode id>.states`. Evaluations
    repeat seeds and thus ids: further episodes go to `<episode id>-2.spaces`, and so on, also if
    several processes write at the same time. An episode that a resumed run continues or plays once
    more replaces its file. With a name, all episodes are appended, as they end, to `<name>.spaces`
    and `<name>.states`; what was written stays readable if the process is killed or the disk is
    full.

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
        self._files = EpisodeFiles(self.folder)

    def write(self, record: Trajectory) -> None:
        """Write the file or append to it."""
        if self.name:
            append_record(self.folder / f"{self.name}.{record.kind}", record.kind, _body_of(record))
        else:
            body = _body_of(record)
            if isinstance(record, StateTrajectoryRecord):
                body += bytes(-len(body) % 16) + decisions_digest(record, len(record.steps))
            files, holds_part = deferred_files(), partial(_holds_part, record)
            path, further = self._files.choose(record.episode_id, record.kind, holds_part, files)
            files.write(path, file_content(record.kind, body), further)

    def close(self) -> None:
        """Wait until all files have their names."""
        deferred_files().flush()


def _body_of(record: Trajectory) -> bytes:
    """Return an episode as bytes; a space record holds the provenance of the running command."""
    if isinstance(record, SpacesTrajectoryRecord):
        return record.to_bytes(shared_provenance())
    return record.to_bytes()


def _holds_part(record: Trajectory, path: Path) -> bool:
    """True if a file holds a part of an episode, the same episode, or nothing that can be read."""
    if isinstance(record, SpacesTrajectoryRecord):
        try:
            return Choices.of(SpacesTrajectoryRecord.load(path)).is_part_of(Choices.of(record))
        except ValueError:
            return True
    deferred_files().flush()
    return is_part_of(path.read_bytes()[-N_DIGEST_BYTES:], record)  # a pickle ignores what follows it
