"""Space records, which hold episodes as agents saw and played them, and the format of record files.

These files hold numbers, a description of the spaces (JSON) and the bytes of arrays. Nothing in
them is executed, and nothing is trusted before it is checked. Intact episodes can be read even if
the rest of the file is damaged.

A file begins with 64 bytes: a line of text that names the kind of its records and the version of
the format, and the offset at which its last complete episode ends. Episodes follow, each with a
header of 16 bytes (length of the body, CRC-32 of both) and a body, whose length is a multiple of
16. Numbers are little-endian.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.provenance import PROVENANCE_KEY
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.system.atomic_files import write_file
from maze_pl.system.deferred_files import deferred_files

FORMAT: Final = 1
HEAD, END = struct.Struct("<QI4x"), struct.Struct("<Q")
LINE_LENGTH: Final = 56
_MOST_UNREADABLE: Final = 100
"""Consecutive unreadable episodes after which the rest of a file is given up."""
_LARGEST_COUNT: Final = 1 << 31
_LARGEST_TIME: Final = 1 << 53
"""Exclusive upper bounds of the number of agents and of environment times."""

Record = TypeVar("Record")

Array = np.ndarray[Any, np.dtype[Any]]
Tree = dict[str, Array]
Act = tuple[StepKey, int, int, float, bool, Mapping[str, Any], Mapping[str, Any]]
"""Step key, agent id, environment time before the act, reward, actor done, observation, action."""

FIXED: Final = struct.Struct("<QqqIIII")
"""Acts, last environment time, last agent id and step key, lengths of the description and of the id, flags."""
_NAMES: Final = "key_index", "agent_id", "env_time", "reward", "actor_done", "actor_reward"
_KINDS: Final = "<i8", "<i8", "<i8", "<f8", "u1", "<f8"
# flags; lower bits mark arrays that differ from `_usual`
_TERMINATED: Final = 64
_TRUNCATED: Final = 128
_GOES_ON: Final = 256


def file_content(record_kind: str, body: bytes) -> bytes:
    """Content of a file with one episode.

    Args:
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.
    """
    content = _framed(body)
    head = first_line(record_kind) + END.pack(LINE_LENGTH + END.size + len(content))
    return head + content


def write_record(path: str | Path, record_kind: str, body: bytes) -> None:
    """Write a file with one episode; it replaces a previous file once it is on the disk.

    Args:
        path: The file.
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.
    """
    write_file(path, file_content(record_kind, body))


def append_record(path: Path, record_kind: str, body: bytes) -> None:
    """Append an episode to a file; overwrites an incomplete episode left by a killed process.

    Args:
        path: The file, created if it does not exist.
        record_kind: Kind of records: `spaces` or `states`.
        body: The episode.

    Raises:
        ValueError: The file holds something else.
        OSError: The file cannot be written; it keeps all previous episodes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    content, line = _framed(body), first_line(record_kind)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases the lock
        begun = file.read(LINE_LENGTH)
        if begun != line[: len(begun)]:
            raise ValueError(f"{path} exists and holds no {record_kind}: name another file, or remove it")
        end = max(*END.unpack(file.read(END.size).ljust(END.size, b"\0")), LINE_LENGTH + END.size)
        file.seek(0)
        file.write(line)
        file.truncate(end)
        file.seek(end)
        file.write(content)
        file.seek(LINE_LENGTH)  # flushes the content before the offset that makes it valid
        file.write(END.pack(end + len(content)))


def read_records(
    path: str | Path, decoders: Mapping[str, Callable[[bytearray], Record]], damaged: list[str] | None = None
) -> Iterator[Record]:
    """Yield the episodes of a file in order; allocates no more than the file can hold.

    Args:
        path: The file.
        decoders: For each accepted kind of records, the function that decodes a body.
        damaged: Collects messages about unreadable parts, in place of exceptions.

    Raises:
        ValueError: Something is damaged or missing, or the file holds something else; the message names it.
    """
    deferred_files().flush()  # of this process, which may just have written the file
    with open(path, "rb", buffering=1 << 16) as file:  # most episodes take a single read
        left = end = size = n_unreadable = 0
        decode = None
        while decode is None or left > 0 or (left == 0 and end > size):  # the last: whole episodes are missing
            try:
                if decode is None:
                    decode = decoders[kind_of(file.read(LINE_LENGTH), decoders)]
                    (end,) = END.unpack(file.read(END.size).ljust(END.size, b"\0"))
                    size, left = 0, -1  # nothing more can be read if the next line fails
                    size = written_size(path)  # after `end`, as another process may be appending
                    left = size - LINE_LENGTH - END.size
                head = file.read(HEAD.size)
                length, checksum = HEAD.unpack(head.ljust(HEAD.size, b"\xff"))
                rest, left = left, left - HEAD.size - length
                if left < 0:
                    raise ValueError("it is cut short: its last episode is not whole")
                if length == 0:
                    left = -1
                    raise ValueError(f"it is damaged: its last {rest} bytes are an empty episode")
                body = bytearray(length)
                cast(Any, file).readinto(body)
                if zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
                    raise ValueError(f"it is damaged: the checksum {left} bytes before the end is wrong")
                record = decode(body)
            except Exception as error:  # a forged body may raise anything
                problem = f"{path}: {error}" if type(error) is ValueError else f"{path} holds no episode: {error!r}"
                if damaged is None:
                    raise ValueError(problem) from error
                n_unreadable += 1
                if n_unreadable == _MOST_UNREADABLE and left > 0:
                    problem += (
                        f"; the {left} bytes after it are skipped, as {n_unreadable} episodes in a row are damaged"
                    )
                    left = -1
                damaged.append(problem)
                if decode is None:
                    return
            else:
                n_unreadable = 0
                yield record


def written_size(path: str | Path) -> int:
    """Size in bytes of a file that is not sparse.

    Args:
        path: The file.

    Raises:
        ValueError: The file is sparse: a few bytes on the disk may claim any size.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        first_hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE) if size else 0
    if first_hole < size:
        remedy = "copy it with cp --sparse=never if that is meant"
        raise ValueError(
            f"it is sparse: from byte {first_hole} on, some of its {size} bytes were never written; {remedy}"
        )
    return size


def kind_of(line: bytes, kinds: Iterable[str]) -> str:
    """Return the kind of the records in a file that begins with a line.

    Args:
        line: The line, of `LINE_LENGTH` bytes.
        kinds: Accepted kinds.

    Raises:
        ValueError: It is another kind, or no record file.
    """
    known = {first_line(kind): kind for kind in kinds}
    if line in known:
        return known[line]
    special = {b"": "is empty", b"\x80": "is a pickle, which runs whatever code it holds and is not read"}
    found = special.get(line[:1], f"begins with {line.decode(errors='replace').strip()!r}")
    expected = " or ".join(one.decode().strip() for one in known)
    raise ValueError(f"it {found}, expected {expected!r}; a higher format needs a newer maze_pl")


def first_line(kind: str) -> bytes:
    """Return the line with which a file of records begins."""
    return f"maze_pl {kind} format {FORMAT}".ljust(LINE_LENGTH - 1).encode() + b"\n"


def _framed(body: bytes) -> bytes:
    body += bytes(-len(body) % 16)
    length = END.pack(len(body))
    return HEAD.pack(len(body), zlib.crc32(body, zlib.crc32(length))) + body


@dataclass
class SpacesTrajectoryRecord:
    """An episode, or the played part of it: L acts, L_k of them in sub-step k.

    Attributes:
        episode_id: UUID of the episode.
        spec: Specification of observations and actions.
        key_index: [L] int64, index of each act's step key among the step keys.
        agent_id: [L] int64, agent that acted.
        env_time: [L] int64, environment steps completed before the act.
        reward: [L] float64, reward returned by `env.step`.
        actor_done: [L] bool, True if the actor was done with this act.
        observation: Step key -> name -> [L_k, ...], observations before the acts.
        action: Step key -> head -> [L_k, ...], actions.
        terminated: Whether the last act ended the episode.
        truncated: Whether the episode was cut off after the last act, also if it was just not
            continued.
        last_env_time: Environment steps completed at the end.
        last_actor: Actor whose turn would have been next; None if the episode was terminated.
        last_observation: Observation for that actor; empty if the episode was terminated.
        actor_reward: [L] float64, rewards attributed to the acts, if the environment attributes
            them.
    """

    kind: ClassVar[str] = "spaces"
    episode_id: str
    spec: Spec
    key_index: Array
    agent_id: Array
    env_time: Array
    reward: Array
    actor_done: Array
    observation: dict[StepKey, Tree]
    action: dict[StepKey, Tree]
    terminated: bool
    truncated: bool
    last_env_time: int
    last_actor: ActorID | None
    last_observation: Tree
    actor_reward: Array | None = None

    def __len__(self) -> int:
        """Number of acts."""
        return len(self.reward)

    @classmethod
    def of_acts(cls, episode_id: str, spec: Spec, acts: Sequence[Act], *rest: Any, **others: Any) -> Self:
        """Make the record of an episode from a sequence of acts.

        Args:
            episode_id: UUID of the episode.
            spec: Specification of observations and actions.
            acts: [L] the acts.
            rest: The attributes from `terminated` on.
            others: The same, by name.
        """

        def stacked(key: StepKey, place: int, space: spaces.Dict) -> Tree:
            trees: list[Any] = [act[place] for act in acts if act[0] == key]
            arrays = {}
            for name, part in space.spaces.items():
                array = np.array([tree[name] for tree in trees], part.dtype)
                arrays[name] = array.reshape(len(trees), *(part.shape or ()))
            return arrays

        keys, *columns = list(zip(*acts, strict=True))[:5]
        values: list[Any] = [np.array([spec.step_keys.index(key) for key in keys]), *map(np.array, columns, "qqd?")]
        values.append({key: stacked(key, 5, step.observation_space) for key, step in spec.steps.items()})
        values.append({key: stacked(key, 6, step.action_space) for key, step in spec.steps.items()})
        return cls(episode_id, spec, *values, *rest, **others)

    def save(self, path: str | Path) -> None:
        """Write a file; it replaces a previous file once it is complete.

        Raises:
            ValueError: An array does not fit the specification, or the others.
        """
        write_record(path, self.kind, self.to_bytes())

    @staticmethod
    def load(path: str | Path) -> SpacesTrajectoryRecord:
        """Read the first episode of a file, which may be untrusted: nothing is executed.

        Raises:
            ValueError: The file is damaged, or holds something else.
        """
        return next(read_records(path, {"spaces": SpacesTrajectoryRecord.from_bytes}))

    def to_bytes(self, provenance: Mapping[str, Any] | None = None) -> bytes:
        """Encode the episode as in a file.

        Args:
            provenance: Origin of the episode in plain values, which `file_contents` returns; the
                decoded episode does not hold it.

        Raises:
            ValueError: An array does not fit the specification or the other arrays, or could not be
                read back; see `check`.
        """
        actor = self.last_actor
        n = len(self)
        keys = self.spec.step_keys
        flags = _TERMINATED * self.terminated | _TRUNCATED * self.truncated | _GOES_ON * (actor is not None)
        for bit, (name, usual) in enumerate(zip(_NAMES, _usual(n), strict=True)):
            flags |= (not np.array_equal(getattr(self, name), usual)) << bit
        place, agent = (keys.index(actor.step_key), actor.agent_id) if actor else (0, 0)
        description = self.spec.to_dict()
        if provenance is not None:
            description |= {PROVENANCE_KEY: dict(provenance)}
        texts = json.dumps(description, separators=(",", ":")).encode(), self.episode_id.encode()
        content = bytearray(FIXED.pack(n, self.last_env_time, agent, place, *map(len, texts), flags))
        content += b"".join(texts)
        for tree, name, kind, shape in self._arrays(flags):
            if np.shape(tree[name]) != shape:
                raise ValueError(f"{name} of {self.episode_id} has shape {np.shape(tree[name])}, expected {shape}")
            content += bytes(-len(content) % 8) + np.asarray(tree[name], kind).tobytes()
        self.check()
        return bytes(content)

    @staticmethod
    def from_bytes(body: bytearray) -> SpacesTrajectoryRecord:
        """Decode the result of `to_bytes`; the arrays are views of these bytes.

        Raises:
            Exception: Of any kind, if the bytes are not from `to_bytes`.
        """
        n, env_time, agent, place, n_spec, n_id, flags = FIXED.unpack_from(body)
        start, at = FIXED.size + n_spec, FIXED.size + n_spec + n_id
        spec = _described(bytes(body[FIXED.size : start]), 1 << max(20, len(body).bit_length()))
        smallest = min(_act_size(step) for step in spec.steps.values())
        if not 0 < n <= (len(body) - at) // max(1, smallest):
            raise ValueError(f"an episode of {n} acts cannot be in {len(body)} bytes")
        values: list[Any] = [body[start:at].decode(), spec, *_usual(n)[:-1]]
        values += [{key: {} for key in spec.steps}, {key: {} for key in spec.steps}]
        values += [bool(flags & _TERMINATED), bool(flags & _TRUNCATED), env_time]
        values += [ActorID(spec.step_keys[place], agent) if flags & _GOES_ON else None, {}]
        record = SpacesTrajectoryRecord(*values)
        for tree, name, kind, shape in record._arrays(flags):
            at += -at % 8
            tree[name] = np.frombuffer(body, kind, math.prod(shape), at).reshape(shape)  # raises if bytes are missing
            at += tree[name].nbytes
        if len(body) - at >= 16:
            raise ValueError(f"{len(body) - at} of its {len(body)} bytes are not part of any array")
        record.actor_done = record.actor_done != 0
        record.check()
        return record

    def check(self) -> None:
        """Refuse agent ids, times and rewards that no environment produces; does not check spaces.

        Raises:
            ValueError: An agent id is negative or too large for the number of agents, a time is
                negative, huge, or before the previous time, or a reward is not finite.
        """
        counts = [step.n_agents if step.n_agents > 0 else _LARGEST_COUNT for step in self.spec.steps.values()]
        if self.agent_id.min() < 0 or self.agent_id.max() >= min(counts):
            outside = (self.agent_id < 0) | (self.agent_id >= np.array(counts)[self.key_index])
            if outside.any():
                agents = np.unique(self.agent_id[outside])[:5].tolist()
                raise ValueError(f"its agent ids {agents} are not among those of sub-steps with {counts} agents")
        actor = self.last_actor
        if actor is not None and not 0 <= actor.agent_id < counts[self.spec.step_keys.index(actor.step_key)]:
            raise ValueError(f"its last actor {actor} is not among those of sub-steps with {counts} agents")
        times = self.env_time.item(0), self.env_time.item(-1), self.last_env_time
        in_order = 0 <= times[0] <= times[1] <= times[2] < _LARGEST_TIME
        if not in_order or (self.env_time[1:] < self.env_time[:-1]).any():
            raise ValueError(f"its environment times, {times[0]} to {times[2]}, are not in ascending order")
        if not np.isfinite(self.reward).all():
            raise ValueError(f"its rewards are not finite: {self.reward[~np.isfinite(self.reward)][:5].tolist()}")
        if self.actor_reward is not None and np.isinf(self.actor_reward).any():  # NaN: of an incomplete step
            raise ValueError("its rewards of single acts must not be infinite")

    def _arrays(self, flags: int) -> Iterator[tuple[Tree, str, Any, tuple[int, ...]]]:
        """Yield the place of each array, in file order: dict, name in it, dtype and shape."""
        n = len(self)
        steps = self.spec.steps
        actor = self.last_actor
        for bit, name in enumerate(_NAMES):
            if flags >> bit & 1:
                yield vars(self), name, _KINDS[bit], (n,)
        counts = [n, *[0] * (len(steps) - 1)]
        if flags & 1:
            if self.key_index.min() < 0 or self.key_index.max() >= len(steps):
                raise ValueError(f"its acts are of sub-steps {np.unique(self.key_index)} out of {len(steps)}")
            counts = np.bincount(self.key_index, minlength=len(steps)).tolist()
        halves = (self.observation, "observation_space"), (self.action, "action_space")
        per_key = list(zip(steps.items(), counts, strict=True))
        trees: list[Any] = [(tree[k], getattr(s, what), (c,)) for tree, what in halves for (k, s), c in per_key]
        trees += [(self.last_observation, steps[actor.step_key].observation_space, ())] if actor else []
        for tree, space, count in trees:
            for name, part in space.spaces.items():
                yield tree, name, part.dtype.newbyteorder("<"), count + part.shape


def _act_size(step: StepSpec) -> int:
    """Size in bytes of the observation and action of one act."""
    parts = [*step.observation_space.spaces.values(), *step.action_space.spaces.values()]
    return sum(part.dtype.itemsize * math.prod(part.shape or ()) for part in cast(Any, parts))


def _usual(n: int) -> list[Any]:
    """Usual values of `_NAMES`, which are left out of files."""
    return [np.zeros(n, np.int64), np.zeros(n, np.int64), np.arange(n), np.zeros(n), np.zeros(n, np.bool_), None]


@functools.lru_cache(maxsize=8)
def _described(text: bytes, n_bytes: int) -> Spec:
    """Specification that a file describes; built once for all files with the same description.

    Args:
        text: JSON of `Spec.to_dict`.
        n_bytes: Upper bound in bytes of one observation and action of each sub-step; the file has
            no more.
    """

    def check(part: dict[str, Any]) -> dict[str, Any]:
        nonlocal n_bytes
        if part.get("type") in ("box", "multi_binary"):
            kind, shape = np.dtype(part.get("dtype", "int8")), part["shape"]
            n_bytes -= kind.itemsize * math.prod(shape)
            if n_bytes < 0 or kind.kind not in "iuf" or any(type(size) is not int or size < 0 for size in shape):
                raise ValueError(f"a space of type {kind.name} and shape {shape} does not fit into this file")
        return part

    spec = Spec.from_dict(json.loads(text, object_hook=check))
    numbers = [number for step in spec.steps.values() for number in (step.n_agents, step.n_slots)]
    if {*map(type, spec.steps)} - {int, str} or {*map(type, numbers)} != {int}:
        raise ValueError("keys of sub-steps must be integers or strings, and numbers of agents must be integers")
    for step in spec.steps.values():
        if (step.n_agents != -1 and not 0 < step.n_agents == step.n_slots) or not 0 < step.n_slots < _LARGEST_COUNT:
            raise ValueError(f"a sub-step cannot have {step.n_agents} agents in {step.n_slots} slots")
    return spec
