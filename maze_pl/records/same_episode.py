"""Comparison of records with the same id: one episode again, a part of it, or another one.

Ids follow from seeds, so that they do not distinguish the episodes of several policies; those of logs
may be names of machines, which often do the same in other situations.
"""

from __future__ import annotations

import hashlib
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maze_pl.core.spaces import leaves
from maze_pl.records.acts import Array
from maze_pl.records.record_files import SpacesTrajectoryRecord


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything that was chosen in an episode, from which start, and with which rewards.

    The other observations are not compared, as a copy may have a damaged one.

    Attributes:
        episode_id: UUID of the episode.
        n_acts: Number of acts.
        is_cut: Whether the episode was not terminated, so that it may continue elsewhere.
        acts: Sub-steps, agents, rewards and actions of all acts, in order, as bytes. Those of a part
            of an episode are the beginnings of those of the whole.
        start: Digest of the first observation.
    """

    episode_id: str
    n_acts: int
    is_cut: bool
    acts: tuple[bytes, ...]
    start: bytes

    @classmethod
    def of(cls, record: SpacesTrajectoryRecord) -> Choices:
        """Return the choices of a record."""
        arrays = (record.key_index, record.agent_id, record.reward, *leaves(record.action))
        acts = tuple(array.tobytes() for array in arrays)
        of_first = record.observation[record.spec.step_keys[int(record.key_index[0])]]
        start = _digest([array[:1] for array in leaves(of_first)])
        return cls(record.episode_id, len(record), not record.terminated, acts, start)

    def identity(self) -> bytes:
        """Digest that is equal for records of the same episode."""
        digest = hashlib.blake2b(self.episode_id.encode(), digest_size=16)
        for content in self.acts:
            digest.update(content)
        digest.update(self.start)
        return digest.digest()

    def is_part_of(self, other: Choices) -> bool:
        """True if this is the other episode, or one that was cut off before the other one ended."""
        compared = other.episode_id, other.start, len(other.acts)
        if (self.episode_id, self.start, len(self.acts)) != compared:
            return False
        if self.n_acts > other.n_acts or (self.n_acts < other.n_acts and not self.is_cut):
            return False
        pairs = zip(self.acts, other.acts, strict=True)
        return all(whole.startswith(part) for part, whole in pairs)


def _digest(arrays: Iterable[Array]) -> bytes:
    """Return a digest of the contents of arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


class _Entry(NamedTuple):
    """An episode, and the place and sizes in bytes of its choices in a file."""

    episode_id: str
    n_acts: int
    is_cut: bool
    start: bytes
    place: int
    sizes: list[int]


class Parts:
    """Finds episodes that are parts of longer ones, as resumed runs continue episodes.

    Args:
        max_memory: Size in bytes above which choices are kept in an unnamed temporary file; 0 for
            no limit.
    """

    def __init__(self, max_memory: int = 0) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_memory)  # noqa: SIM115  # see `close`
        self._episodes: list[_Entry] = []

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def add(self, choices: Choices) -> None:
        """Add an episode."""
        sizes = [len(content) for content in choices.acts]
        place = self._file.tell()
        known = choices.episode_id, choices.n_acts, choices.is_cut, choices.start
        entry = _Entry(*known, place, sizes)
        self._episodes.append(entry)
        self._file.write(b"".join(choices.acts))

    def find(self) -> list[int]:
        """Return the numbers of the episodes that are parts of others, in the order of `add`."""
        same_id = defaultdict[str, list[int]](list)
        for number, entry in enumerate(self._episodes):
            same_id[entry.episode_id].append(number)
        found = []
        for numbers in same_id.values():
            entries = [self._episodes[number] for number in numbers]
            longest = max(entry.n_acts for entry in entries)
            if any(entry.is_cut and entry.n_acts < longest for entry in entries):
                found += self._found(numbers)
        return sorted(found)

    def _found(self, numbers: Sequence[int]) -> list[int]:
        """Return those of the episodes with one id that are parts of others."""
        read = [(self._choices(self._episodes[number]), number) for number in numbers]
        by_length = sorted(read, key=lambda pair: pair[0].n_acts)
        lengths = [choices.n_acts for choices, _ in by_length]
        found = []
        for choices, number in by_length:
            longer = by_length[bisect_right(lengths, choices.n_acts) :]
            if any(choices.is_part_of(other) for other, _ in longer):
                found.append(number)
        return found

    def _choices(self, entry: _Entry) -> Choices:
        """Read the choices of an episode."""
        self._file.seek(entry.place)
        acts = tuple([self._file.read(size) for size in entry.sizes])
        return Choices(entry.episode_id, entry.n_acts, entry.is_cut, acts, entry.start)
