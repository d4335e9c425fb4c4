"""Recorded episodes: as agents saw and played them, from which others can learn; and the files that hold episodes.

In files of this kind are numbers, a description of the spaces (JSON) and the bytes of arrays: nothing that could be
executed, and nothing that is believed before it is checked. What is whole can be read, whatever became of the rest.

A file begins with 64 bytes: a line of text that names the kind of its records and the version of the format, and where
its last whole episode ends. Then come episodes: each a head of 16 bytes (length of the body, CRC-32 of both) and a
body, whose length is a multiple of 16. Numbers are little-endian.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.output_folder import write_file
from maze_pl.core.spec import Spec

FORMAT: Final = 1
_HEAD, _END = struct.Struct("<QI4x"), struct.Struct("<Q")
_LINE_LENGTH: Final = 56

Record = TypeVar("Record")

Array = np.ndarray[Any, np.dtype[Any]]
Tree = dict[str, Array]
Act = tuple[StepKey, int, int, float, bool, Mapping[str, Any], Mapping[str, Any]]
"""Step key, agent id, environment time before, reward, whether the actor is done, what it saw, what it did."""

_FIXED: Final = struct.Struct("<QqqIIII")
"""Acts, last environment time, last agent id and step key, lengths of the description and of the id, flags."""
_NAMES: Final = "key_index", "agent_id", "env_time", "reward", "actor_done", "actor_reward"
_KINDS: Final = "<i8", "<i8", "<i8", "<f8", "u1", "<f8"
_TERMINATED, _TRUNCATED, _GOES_ON = 64, 128, 256  # flags; those below say what differs from `_usual`


def write_record(path: str | Path, kind: str, body: bytes) -> None:
    """Write a file with one episode, which replaces a former one once it is complete.

    Args:
        path: The file.
        kind: Of records: `spaces` or `states`.
        body: The episode.
    """
    content = _framed(body)
    write_file(path, _line(kind) + _END.pack(_LINE_LENGTH + _END.size + len(content)) + content)


def append_record(path: Path, kind: str, body: bytes) -> None:
    """Append an episode to a file, in place of an unfinished one that a killed process left.

    Args:
        path: The file, made if it is not there.
        kind: Of records: `spaces` or `states`.
        body: The episode.

    Raises:
        ValueError: The file holds something else.
        OSError: It cannot be written; all former episodes are in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    content, line = _framed(body), _line(kind)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # closing the file gives it back
        begun = file.read(_LINE_LENGTH)
        if begun != line[: len(begun)]:
            raise ValueError(f"{path} exists and holds no {kind}: name another file, or remove it")
        end = max(*_END.unpack(file.read(_END.size).ljust(_END.size, b"\0")), _LINE_LENGTH + _END.size)
        file.seek(0)
        file.write(line)
        file.truncate(end)
        file.seek(end)
        file.write(content)
        file.seek(_LINE_LENGTH)  # writes what is before
        file.write(_END.pack(end + len(content)))


def read_records(
    path: str | Path, decoders: Mapping[str, Callable[[bytearray], Record]], damaged: list[str] | None = None
) -> Iterator[Record]:
    """The episodes of a file, one after the other; nothing is allocated that the file cannot hold.

    Args:
        path: The file.
        decoders: For each kind of records that may come, what makes one of a body.
        damaged: Where messages about what cannot be read go, in place of exceptions.

    Raises:
        ValueError: Something is damaged or missing, or the file holds something else; the message names it.
    """
    with open(path, "rb", buffering=1 << 16) as file:  # most episodes are read in one go
        left, end, size, decode = 0, 0, 0, None
        while decode is None or left > 0 or (left == 0 and end > size):  # if whole episodes are cut off
            try:
                if decode is None:
                    decode = decoders[_kind(file.read(_LINE_LENGTH), decoders)]
                    (end,) = _END.unpack(file.read(_END.size).ljust(_END.size, b"\0"))
                    size = os.fstat(file.fileno()).st_size  # after `end`, as somebody may be appending
                    left = size - _LINE_LENGTH - _END.size
                head = file.read(_HEAD.size)
                length, checksum = _HEAD.unpack(head.ljust(_HEAD.size, b"\xff"))
                left -= _HEAD.size + length
                if left < 0:
                    raise ValueError("it is cut short: its last episode is not whole")
                body = bytearray(length)
                cast(Any, file).readinto(body)
                if zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
                    raise ValueError(f"it is damaged: what ends {left} bytes before the end is not what was written")
                record = decode(body)
            except Exception as error:  # a body that is made up may lead to anything
                problem = f"{path}: {error}" if type(error) is ValueError else f"{path} holds no episode: {error!r}"
                if damaged is None:
                    raise ValueError(problem) from error
                damaged.append(problem)
                if decode is None:
                    return
            else:
                yield record


def _kind(line: bytes, kinds: Mapping[str, object]) -> str:
    """The kind of records in a file that begins with this line."""
    known = {_line(kind): kind for kind in kinds}
    if line in known:
        return known[line]
    special = {b"": "is empty", b"\x80": "is a pickle, which runs whatever code it holds and is not read"}
    found = special.get(line[:1], f"begins with {line.decode(errors='replace').strip()!r}")
    expected = " or ".join(one.decode().strip() for one in known)
    raise ValueError(f"it {found}, expected {expected!r}; a higher format needs a newer maze_pl")


def _line(kind: str) -> bytes:
    return f"maze_pl {kind} format {FORMAT}".ljust(_LINE_LENGTH - 1).encode() + b"\n"


def _framed(body: bytes) -> bytes:
    body += bytes(-len(body) % 16)
    length = _END.pack(len(body))
    return _HEAD.pack(len(body), zlib.crc32(body, zlib.crc32(length))) + body


@dataclass
class SpacesTrajectoryRecord:
    """An episode, or the part of it that was played: L acts, of which L_k are of sub-step k.

    Attributes:
        episode_id: UUID of the episode.
        spec: What agents see and do.
        key_index: [L] int64, position among the step keys of each act.
        agent_id: [L] int64, who acted.
        env_time: [L] int64, environment steps completed before the act.
        reward: [L] float64, what `env.step` returned.
        actor_done: [L] bool, the actor was done with this act.
        observation: Step key -> name -> [L_k, ...], what was seen before the acts.
        action: Step key -> head -> [L_k, ...], what was done.
        terminated: Whether the last act ended the episode.
        truncated: Whether the episode was cut off after it, also because nobody went on with it.
        last_env_time: Environment steps completed in the end.
        last_actor: Who would have acted next; None where the episode was terminated.
        last_observation: What that actor would have seen; empty where the episode was terminated.
        actor_reward: [L] float64, rewards attributed to the acts, where the environment attributes them.
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
        """The record of an episode that was kept act by act.

        Args:
            episode_id: UUID of the episode.
            spec: What agents see and do.
            acts: [L] what happened.
            rest: The attributes from `terminated` on.
            others: The same, by name.
        """

        def stacked(key: StepKey, place: int, space: spaces.Dict) -> Tree:
            trees: list[Any] = [act[place] for act in acts if act[0] == key]
            parts = space.spaces.items()
            return {k: np.array([t[k] for t in trees], p.dtype).reshape(len(trees), *(p.shape or ())) for k, p in parts}

        keys, *columns = list(zip(*acts, strict=True))[:5]
        values: list[Any] = [np.array([spec.step_keys.index(key) for key in keys]), *map(np.array, columns, "qqd?")]
        values.append({key: stacked(key, 5, step.observation_space) for key, step in spec.steps.items()})
        values.append({key: stacked(key, 6, step.action_space) for key, step in spec.steps.items()})
        return cls(episode_id, spec, *values, *rest, **others)

    def save(self, path: str | Path) -> None:
        """Write a file, which replaces a former one once it is complete.

        Raises:
            ValueError: An array does not fit the specification, or the others.
        """
        write_record(path, self.kind, self.to_bytes())

    @staticmethod
    def load(path: str | Path) -> SpacesTrajectoryRecord:
        """Read the first episode of a file, whoever wrote it: nothing in it is executed.

        Raises:
            ValueError: It is damaged, or holds something else.
        """
        return next(read_records(path, {"spaces": SpacesTrajectoryRecord.from_bytes}))

    def to_bytes(self) -> bytes:
        """The episode as it is in a file.

        Raises:
            ValueError: An array does not fit the specification, or the others.
        """
        actor, n, keys = self.last_actor, len(self), self.spec.step_keys
        flags = _TERMINATED * self.terminated | _TRUNCATED * self.truncated | _GOES_ON * (actor is not None)
        for bit, (name, usual) in enumerate(zip(_NAMES, _usual(n), strict=True)):
            flags |= (not np.array_equal(getattr(self, name), usual)) << bit
        place, agent = (keys.index(actor.step_key), actor.agent_id) if actor else (0, 0)
        texts = json.dumps(self.spec.to_dict(), separators=(",", ":")).encode(), self.episode_id.encode()
        content = bytearray(_FIXED.pack(n, self.last_env_time, agent, place, *map(len, texts), flags))
        content += b"".join(texts)
        for tree, name, kind, shape in self._arrays(flags):
            if np.shape(tree[name]) != shape:
                raise ValueError(f"{name} of {self.episode_id} has shape {np.shape(tree[name])}, expected {shape}")
            content += bytes(-len(content) % 8) + np.asarray(tree[name], kind).tobytes()
        return bytes(content)

    @staticmethod
    def from_bytes(body: bytearray) -> SpacesTrajectoryRecord:
        """The episode that `to_bytes` made these bytes of; its arrays are parts of them.

        Raises:
            Exception: Of any kind, if the bytes are others.
        """
        n, env_time, agent, place, n_spec, n_id, flags = _FIXED.unpack_from(body)
        start, at = _FIXED.size + n_spec, _FIXED.size + n_spec + n_id
        spec = _described(bytes(body[_FIXED.size : start]), 1 << max(20, len(body).bit_length()))
        if not 0 < n <= len(body):
            raise ValueError(f"an episode of {n} acts cannot be in {len(body)} bytes")
        values: list[Any] = [body[start:at].decode(), spec, *_usual(n)[:-1]]
        values += [{key: {} for key in spec.steps}, {key: {} for key in spec.steps}]
        values += [bool(flags & _TERMINATED), bool(flags & _TRUNCATED), env_time]
        values += [ActorID(spec.step_keys[place], agent) if flags & _GOES_ON else None, {}]
        record = SpacesTrajectoryRecord(*values)
        for tree, name, kind, shape in record._arrays(flags):
            at += -at % 8
            tree[name] = np.frombuffer(body, kind, math.prod(shape), at).reshape(shape)  # refuses what is not there
            at += tree[name].nbytes
        record.actor_done = record.actor_done != 0
        return record

    def _arrays(self, flags: int) -> Iterator[tuple[Tree, str, Any, tuple[int, ...]]]:
        """Where each array of a file belongs, in order: the dict, the name there, its type and its shape."""
        n, steps, actor = len(self), self.spec.steps, self.last_actor
        for bit, name in enumerate(_NAMES):
            if flags >> bit & 1:
                yield vars(self), name, _KINDS[bit], (n,)
        counts = [n, *[0] * (len(steps) - 1)]
        if flags & 1:
            if self.key_index.min() < 0 or self.key_index.max() >= len(steps):
                raise ValueError(f"there are {len(steps)} sub-steps, and acts of {np.unique(self.key_index)}")
            counts = np.bincount(self.key_index, minlength=len(steps)).tolist()
        halves = (self.observation, "observation_space"), (self.action, "action_space")
        per_key = list(zip(steps.items(), counts, strict=True))
        trees: list[Any] = [(tree[k], getattr(s, what), (c,)) for tree, what in halves for (k, s), c in per_key]
        trees += [(self.last_observation, steps[actor.step_key].observation_space, ())] if actor else []
        for tree, space, count in trees:
            for name, part in space.spaces.items():
                yield tree, name, part.dtype.newbyteorder("<"), count + part.shape


def _usual(n: int) -> list[Any]:
    """`_NAMES` as they often are, in which case they are left out."""
    return [np.zeros(n, np.int64), np.zeros(n, np.int64), np.arange(n), np.zeros(n), np.zeros(n, np.bool_), None]


@functools.lru_cache(maxsize=8)
def _described(text: bytes, n_bytes: int) -> Spec:
    """The specification that a file describes, built once for all that have the same.

    Args:
        text: JSON of `Spec.to_dict`.
        n_bytes: Bytes that one of each observation and action may take; more would not be in the file.
    """

    def check(part: dict[str, Any]) -> dict[str, Any]:
        nonlocal n_bytes
        if part.get("type") in ("box", "multi_binary"):
            kind, shape = np.dtype(part.get("dtype", "int8")), part["shape"]
            n_bytes -= kind.itemsize * math.prod(shape)
            if n_bytes < 0 or kind.kind not in "iuf" or any(type(size) is not int or size < 0 for size in shape):
                raise ValueError(f"there is no space of type {kind.name} and shape {shape} in this file")
        return part

    spec = Spec.from_dict(json.loads(text, object_hook=check))
    numbers = [number for step in spec.steps.values() for number in (step.n_agents, step.n_slots)]
    if {*map(type, spec.steps)} - {int, str} or {*map(type, numbers)} != {int}:
        raise ValueError("sub-steps have keys that are numbers or text, and numbers of agents")
    return spec
