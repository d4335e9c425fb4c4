"""Space records, which hold episodes as agents saw and played them, and their encoding in files.

An encoded episode begins with numbers (see `FIXED`), a description of the spaces (JSON) and the id
of the episode. The bytes of its arrays follow.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.exact_numbers import overflow_of
from maze_pl.core.provenance import PROVENANCE_KEY
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.framing import read_records, write_record

_LARGEST_COUNT: Final = 1 << 31
_LARGEST_TIME: Final = 1 << 53
"""Exclusive upper bounds of the number of agents and of environment times."""

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


def as_stored(values: Any, space: spaces.Space[Any], what: str) -> Array:
    """Copy numbers to an array of the dtype of their space.

    Args:
        values: Numbers of any shape.
        space: The space.
        what: Description of the numbers, for the message.

    Raises:
        ValueError: The dtype is one of integers that cannot hold one of the numbers.
    """
    dtype = np.dtype(space.dtype)
    array = np.array(values)
    if array.dtype == dtype:
        return array
    if (fault := overflow_of(array, dtype)) is not None:
        raise ValueError(f"{what} {fault}")
    return array.astype(dtype)


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
        truncated: Whether the episode was cut off after the last act, or was simply not continued.
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
            others: Attributes from `terminated` on, by name.

        Raises:
            ValueError: The integer type of a space cannot hold a number of an observation or action.
        """

        step_keys, agent_ids, env_times, rewards, actor_done, observations, actions = zip(*acts, strict=True)

        def stacked(key: StepKey, trees: Sequence[Mapping[str, Any]], space: spaces.Dict) -> Tree:
            of_key = [tree for k, tree in zip(step_keys, trees, strict=True) if k == key]
            arrays = {}
            for name, part in space.spaces.items():
                array = as_stored([tree[name] for tree in of_key], part, f"{name!r} of sub-step {key!r}")
                arrays[name] = array.reshape(len(of_key), *(part.shape or ()))
            return arrays

        steps = spec.steps.items()
        return cls(
            episode_id,
            spec,
            np.array([spec.step_keys.index(key) for key in step_keys]),
            np.array(agent_ids, np.int64),
            np.array(env_times, np.int64),
            np.array(rewards, np.float64),
            np.array(actor_done, np.bool_),
            {key: stacked(key, observations, step.observation_space) for key, step in steps},
            {key: stacked(key, actions, step.action_space) for key, step in steps},
            *rest,
            **others,
        )

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
        plain = _json(description)
        origin = {} if provenance is None else {PROVENANCE_KEY: dict(provenance)}
        texts = _json(description | origin) if origin else plain, self.episode_id.encode()
        content = bytearray(FIXED.pack(n, self.last_env_time, agent, place, *map(len, texts), flags))
        content += b"".join(texts)
        for tree, name, kind, shape in self._arrays(flags):
            if np.shape(tree[name]) != shape:
                raise ValueError(f"{name} of {self.episode_id} has shape {np.shape(tree[name])}, expected {shape}")
            content += bytes(-len(content) % 8) + np.asarray(tree[name], kind).tobytes()
        _described(plain, _most_bytes(content))
        self.check()
        return bytes(content)

    @staticmethod
    def from_bytes(body: bytearray) -> SpacesTrajectoryRecord:
        """Decode the result of `to_bytes`; the arrays are views of these bytes.

        Raises:
            Exception: Of any kind, if the bytes are not from `to_bytes`.
        """
        n, last_env_time, agent, place, n_spec, n_id, flags = FIXED.unpack_from(body)
        end_of_spec = FIXED.size + n_spec
        at = end_of_spec + n_id  # where the next array begins, or the padding before it
        spec = _described(bytes(body[FIXED.size : end_of_spec]), _most_bytes(body))
        smallest = min(_act_size(step) for step in spec.steps.values())
        if not 0 < n <= (len(body) - at) // max(1, smallest):
            raise ValueError(f"an episode of {n} acts cannot be in {len(body)} bytes")
        usual = dict(zip(_NAMES, _usual(n), strict=True))
        record = SpacesTrajectoryRecord(
            episode_id=body[end_of_spec:at].decode(),
            spec=spec,
            **usual,
            observation={key: {} for key in spec.steps},
            action={key: {} for key in spec.steps},
            terminated=bool(flags & _TERMINATED),
            truncated=bool(flags & _TRUNCATED),
            last_env_time=last_env_time,
            last_actor=ActorID(spec.step_keys[place], agent) if flags & _GOES_ON else None,
            last_observation={},
        )
        for tree, name, kind, shape in record._arrays(flags):
            at += -at % 8
            is_bool = kind == np.bool_  # a forged byte may be neither 0 nor 1
            kind = "u1" if is_bool else kind
            array = np.frombuffer(body, kind, math.prod(shape), at)  # raises if bytes are missing
            tree[name] = (array != 0 if is_bool else array).reshape(shape)
            at += array.nbytes
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
                raise ValueError(f"its agent ids {agents} are out of range: its sub-steps have {counts} agents")
        actor = self.last_actor
        if actor is not None and not 0 <= actor.agent_id < counts[self.spec.step_keys.index(actor.step_key)]:
            raise ValueError(f"its last actor {actor} is out of range: its sub-steps have {counts} agents")
        times = self.env_time.item(0), self.env_time.item(-1), self.last_env_time
        in_order = 0 <= times[0] <= times[1] <= times[2] < _LARGEST_TIME
        if not in_order or (self.env_time[1:] < self.env_time[:-1]).any():
            raise ValueError(f"its environment times, {times[0]} to {times[2]}, are not in ascending order")
        if not np.isfinite(self.reward).all():
            raise ValueError(f"its rewards are not finite: {self.reward[~np.isfinite(self.reward)][:5].tolist()}")
        if self.actor_reward is not None and np.isinf(self.actor_reward).any():  # NaN marks an incomplete step
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
        # dict of arrays, their spaces, and their leading dimensions
        trees: list[tuple[Tree, spaces.Dict, tuple[int, ...]]] = []
        for (key, step), count in zip(steps.items(), counts, strict=True):
            trees.append((self.observation[key], step.observation_space, (count,)))
        for (key, step), count in zip(steps.items(), counts, strict=True):
            trees.append((self.action[key], step.action_space, (count,)))
        if actor is not None:
            trees.append((self.last_observation, steps[actor.step_key].observation_space, ()))
        for tree, space, leading in trees:
            for name, part in cast(Any, space.spaces).items():
                yield tree, name, part.dtype.newbyteorder("<"), leading + part.shape


def _act_size(step: StepSpec) -> int:
    """Size in bytes of the observation and action of one act."""
    parts = [*step.observation_space.spaces.values(), *step.action_space.spaces.values()]
    return sum(part.dtype.itemsize * math.prod(part.shape or ()) for part in cast(Any, parts))


def _usual(n: int) -> list[Any]:
    """Usual values of `_NAMES`, which are left out of files."""
    return [np.zeros(n, np.int64), np.zeros(n, np.int64), np.arange(n), np.zeros(n), np.zeros(n, np.bool_), None]


def _json(description: Mapping[str, Any]) -> bytes:
    """Encode the description of an episode."""
    return json.dumps(description, separators=(",", ":")).encode()


def _most_bytes(body: bytearray) -> int:
    """Upper bound in bytes of one observation and action of each sub-step in an encoded episode."""
    return 1 << max(24, len(body).bit_length())  # an episode may lack acts of a sub-step with large images


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
            if n_bytes < 0 or kind.kind not in "iufb" or any(type(size) is not int or size < 0 for size in shape):
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
