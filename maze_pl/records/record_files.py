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
from maze_pl.core.provenance import PROVENANCE_KEY
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.acts import Act as Act
from maze_pl.records.acts import Array, Tree, columns_of_acts, last_turn
from maze_pl.records.arguments import (
    flag_of,
    require_acts,
    require_counted_times,
    require_id,
    rewards_of_actors,
    time_of_end,
)
from maze_pl.records.framing import read_records, write_record

_LARGEST_COUNT: Final = 1 << 31
_LARGEST_TIME: Final = 1 << 53
"""Exclusive upper bounds of the number of agents and of environment times."""

FIXED: Final = struct.Struct("<QqqIIII")
"""Acts, last environment time, last agent id and step key, lengths of the description and of the id, flags."""
_NAMES: Final = "key_index", "agent_id", "env_time", "reward", "actor_done", "actor_reward"
_KINDS: Final = "<i8", "<i8", "<i8", "<f8", "u1", "<f8"
# flags; lower bits mark arrays that differ from `_usual`
_TERMINATED: Final = 64
_TRUNCATED: Final = 128
_GOES_ON: Final = 256


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
    def of_acts(
        cls,
        episode_id: str,
        spec: Spec,
        acts: Sequence[Act],
        terminated: bool,
        truncated: bool,
        last_env_time: int,
        last_actor: ActorID | tuple[StepKey, int] | None,
        last_observation: Mapping[str, Any],
        actor_reward: Array | None = None,
        *,
        is_from_environment: bool = False,
    ) -> Self:
        """Make the record of an episode from a sequence of acts.

        Args:
            episode_id: UUID of the episode.
            spec: Specification of observations and actions.
            acts: [L] the acts.
            terminated: See the attributes, also for the following.
            truncated: See the attributes.
            last_env_time: See the attributes.
            last_actor: See the attributes; may be a pair.
            last_observation: See the attributes.
            actor_reward: See the attributes.
            is_from_environment: The acts were played in an environment of this library, which has
                checked them; fractions of observations of integers are cut off, as for policies.

        Raises:
            ValueError: An argument has the wrong type or shape, an act does not fit the
                specification, or the acts contradict each other or the end.
        """
        is_exact = not is_from_environment
        if is_exact:
            require_id(episode_id)
            try:
                require_acts(acts)
                terminated = flag_of(terminated, "terminated")
                truncated = flag_of(truncated, "truncated")
                last_env_time = time_of_end(last_env_time)
                actor_reward = rewards_of_actors(actor_reward, len(acts))
            except ValueError as error:
                raise ValueError(f"episode {episode_id}: {error}") from error
        columns = columns_of_acts(spec, acts, is_exact)
        if last_actor is None:
            actor, last = None, dict(last_observation)
        else:
            actor, last = last_turn(spec, last_actor, last_observation, is_exact)
        record = cls(
            episode_id,
            spec,
            **columns,
            terminated=terminated,
            truncated=truncated,
            last_env_time=last_env_time,
            last_actor=actor,
            last_observation=last,
            actor_reward=actor_reward,
        )
        if is_exact:
            record._require_consistent()
        return record

    def _require_consistent(self) -> None:
        """Refuse an episode without an end, wrong times, and actors that act although they were done.

        Raises:
            ValueError: The record contradicts itself, or `check` refuses it.
        """
        try:
            self.check()
            require_counted_times(self.env_time, self.last_env_time, self.spec.is_flat)
        except ValueError as error:
            raise ValueError(f"episode {self.episode_id}: {error}") from error
        if self.last_observation and self.last_actor is None and not self.terminated:
            fault = f"episode {self.episode_id} has a last_observation, but no last_actor"
            raise ValueError(
                f"{fault}; name the actor that would have seen it, such as ({self.spec.step_keys[0]!r}, 0)"
            )
        if not (self.terminated or self.truncated):
            fault = f"episode {self.episode_id} is neither terminated nor truncated"
            raise ValueError(f"{fault}; one that was cut off or goes on is truncated")
        if not self.actor_done.any():
            return
        remedy = "actor_done is for actors that leave before the end of the episode"
        done: dict[tuple[int, int], int] = {}
        actors = zip(self.key_index.tolist(), self.agent_id.tolist(), strict=True)
        for place, actor in enumerate(actors):
            if actor in done:
                fault = f"{self._actor(*actor)} is done after act {done[actor]}"
                raise ValueError(f"{fault}, but also acts in act {place}; {remedy}")
            if self.actor_done[place]:
                done[actor] = place
        for actor, place in done.items():
            is_next = self._actor(*actor) == self.last_actor
            if not self.terminated and (is_next or self.spec.is_flat):
                fault = f"{self._actor(*actor)} is done after act {place}"
                rest = f"but the episode is truncated there; {remedy}, so pass False"
                raise ValueError(f"{fault}, {rest}")

    def _actor(self, index: int, agent_id: int) -> ActorID:
        """Actor of a sub-step's number and an agent id."""
        return ActorID(self.spec.step_keys[index], agent_id)

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
                found = np.shape(tree[name])
                raise ValueError(f"{name} of {self.episode_id} has shape {found}, expected {shape}")
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
            wrong = self.reward[~np.isfinite(self.reward)][:5].tolist()
            raise ValueError(f"its rewards are not finite: {wrong}")
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
