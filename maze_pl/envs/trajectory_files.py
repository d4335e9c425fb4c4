"""Writer of recorded episodes to files, which `read_trajectories` reads."""

import hashlib
import pickle
import re
import struct
from pathlib import Path
from typing import Final

from maze_pl.core.provenance import shared_provenance
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, Trajectory
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.records.framing import append_record, file_content
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.records.same_episode import Choices
from maze_pl.system.atomic_files import output_folder
from maze_pl.system.deferred_files import deferred_files

_TRAILER: Final = struct.Struct("<16sQ16s8x")
_MARK: Final = b"maze_pl choices "
"""Last bytes of a state record's file: mark, number of decisions, and their digest.

They allow to compare episodes without loading a pickle, which ignores what follows it.
"""


class TrajectoryFiles(TrajectoryWriter):
    """Writes episodes to files of their kind of record; see `read_trajectories`.

    Space records go to `<episode id>.spaces`, state records to `<episode id>.states`. Evaluations
    repeat seeds and thus ids: further episodes go to `<episode id>-2.spaces`, and so on. An
    episode that a resumed run continues or plays once more replaces its file. With a name,
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
        self._numbers: dict[str, int] = {}  # of the last file of each episode id

    def write(self, record: Trajectory) -> None:
        """Write the file or append to it."""
        if self.name:
            append_record(self.folder / f"{self.name}.{record.kind}", record.kind, _body_of(record))
        else:
            body = _body_of(record)
            if isinstance(record, StateTrajectoryRecord):
                body += bytes(-len(body) % 16) + _trailer(record, len(record.steps))
            deferred_files().write(self._path(record), file_content(record.kind, body))

    def _path(self, record: Trajectory) -> Path:
        """Return the file of an episode: that of a part of it from an earlier run, or a new one."""
        name = re.sub(r"[^\w.-]", "_", record.episode_id)
        key = f"{name}.{record.kind}"
        number = self._numbers.get(key, 0) + 1
        path = self.folder / _file_name(name, number, record.kind)
        while deferred_files().has(path) and not _holds_part(path, record):
            number += 1
            path = self.folder / _file_name(name, number, record.kind)
        self._numbers[key] = number
        return path

    def close(self) -> None:
        """Wait until all files have their names."""
        deferred_files().flush()


def _body_of(record: Trajectory) -> bytes:
    """Return an episode as bytes; a space record holds the provenance of the running command."""
    if isinstance(record, SpacesTrajectoryRecord):
        return record.to_bytes(shared_provenance())
    return record.to_bytes()


def _file_name(name: str, number: int, kind: str) -> str:
    return f"{name}.{kind}" if number == 1 else f"{name}-{number}.{kind}"


def _holds_part(path: Path, record: Trajectory) -> bool:
    """True if a file holds a part of an episode, the same episode, or nothing that can be read."""
    if isinstance(record, SpacesTrajectoryRecord):
        try:
            return Choices.of(SpacesTrajectoryRecord.load(path)).is_part_of(Choices.of(record))
        except ValueError:
            return True
    deferred_files().flush()
    trailer = path.read_bytes()[-_TRAILER.size :].rjust(_TRAILER.size, b"\0")
    mark, n_decisions, _ = _TRAILER.unpack(trailer)
    if mark != _MARK or n_decisions > len(record.steps):
        return False
    return trailer == _trailer(record, n_decisions)


def _trailer(record: StateTrajectoryRecord, n_decisions: int) -> bytes:
    """Return the last bytes of the file of an episode's first decisions; zeros without a digest."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for step in record.steps[:n_decisions]:
            digest.update(pickle.dumps((step.env_time, step.actor_id, step.maze_action)))
    except Exception:  # an action of any kind may refuse it, although cloudpickle stores it
        return bytes(_TRAILER.size)
    return _TRAILER.pack(_MARK, n_decisions, digest.digest())
