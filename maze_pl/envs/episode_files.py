"""Names of files that hold one episode each, and the digest by which episodes are compared."""

import hashlib
import pickle
import re
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.system.deferred_files import DeferredFiles

_DIGEST: Final = struct.Struct("<16sQ16s8x")
_MARK: Final = b"maze_pl choices "
N_DIGEST_BYTES: Final = _DIGEST.size


class EpisodeFiles:
    """Chooses the files of episodes in a folder: `<episode id>.<suffix>`, `<episode id>-2.<suffix>`, and so on.

    Evaluations repeat seeds and thus ids, so that several episodes have the same one. An episode
    that a resumed run continues or plays once more keeps its file.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}  # of the last file of each episode id

    def first(self, episode_id: str, suffix: str) -> Path:
        """Return the file of the first episode with an id; see `choose`."""
        return self._folder / _file_name(_cleaned(episode_id), 1, suffix)

    def choose(
        self, episode_id: str, suffix: str, holds_part: Callable[[Path], bool], files: DeferredFiles
    ) -> tuple[Path, Iterator[str] | None]:
        """Return the file of an episode: that of a part of it from an earlier run, or a new one.

        Args:
            episode_id: Id of the episode; characters that file names should not have are replaced.
            suffix: Suffix of the file, without a dot.
            holds_part: Tells if an existing file holds a part of the episode, or the whole.
            files: Files that this process has written.

        Returns:
            The file, and names to take instead if another process writes it now; None if it is to be replaced.
        """
        name = _cleaned(episode_id)
        key = f"{name}.{suffix}"
        number = self._numbers.get(key, 0) + 1
        path = self._folder / _file_name(name, number, suffix)
        while files.has(path):
            if holds_part(path):
                self._numbers[key] = number
                return path, None
            number += 1
            path = self._folder / _file_name(name, number, suffix)
        self._numbers[key] = number
        return path, (_file_name(name, further, suffix) for further in count(number + 1))


def _cleaned(episode_id: str) -> str:
    return re.sub(r"[^\w.-]", "_", episode_id)


def _file_name(name: str, number: int, suffix: str) -> str:
    return f"{name}.{suffix}" if number == 1 else f"{name}-{number}.{suffix}"


def decisions_digest(record: StateTrajectoryRecord, n_decisions: int) -> bytes:
    """Return mark, number and digest of an episode's first decisions; zeros if an action has no digest.

    They allow to compare episodes without loading a pickle.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        for step in record.steps[:n_decisions]:
            digest.update(pickle.dumps((step.env_time, step.actor_id, step.maze_action)))
    except Exception:  # an action of any kind may refuse it, although cloudpickle stores it
        return bytes(N_DIGEST_BYTES)
    return _DIGEST.pack(_MARK, n_decisions, digest.digest())


def is_part_of(digest: bytes, record: StateTrajectoryRecord) -> bool:
    """True if an episode begins with the decisions of a digest, or consists of them.

    Args:
        digest: Result of `decisions_digest`, or any other bytes.
        record: The episode.
    """
    if len(digest) != N_DIGEST_BYTES:
        return False
    mark, n_decisions, _ = _DIGEST.unpack(digest)
    if mark != _MARK or n_decisions > len(record.steps):
        return False
    return digest == decisions_digest(record, n_decisions)
