"""Preallocated arrays that a collector writes a rollout into."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from maze_pl.core.actor_id import StepKey
from maze_pl.core.rollout import Rows, Segment
from maze_pl.core.spec import Spec, StepSpec

Array = np.ndarray[Any, np.dtype[Any]]
Tree = dict[str, Array]


def tensors(tree: Tree, n_rows: int | None = None) -> dict[str, torch.Tensor]:
    """Tensors on the first rows of a tree's arrays, on all of them if None."""
    return {name: torch.from_numpy(array[:n_rows]) for name, array in tree.items()}


def _allocate_tree(spaces: dict[str, Any], rows: int, width: int) -> Tree:
    return {name: np.zeros((rows, width, *(space.shape or ())), space.dtype) for name, space in spaces.items()}


@dataclass
class RowArrays:
    """Arrays behind `Rows`, [capacity, N]."""

    filled: Array
    reward: Array
    terminated: Array
    truncated: Array
    env_steps: Array
    first_key: Array
    first_slot: Array
    next_key: Array
    next_slot: Array

    @classmethod
    def allocate(cls, rows: int, n_envs: int) -> RowArrays:
        """Empty rows."""
        flags = {name: np.zeros((rows, n_envs), np.bool_) for name in ("filled", "terminated", "truncated")}
        numbers = {name: np.zeros((rows, n_envs), np.int64) for name in ("env_steps", "first_slot", "next_slot")}
        keys = {name: np.full((rows, n_envs), -1, np.int64) for name in ("first_key", "next_key")}
        return cls(reward=np.zeros((rows, n_envs)), **flags, **numbers, **keys)

    def ends(self, t: int) -> Array:
        """[N] whether an episode ended with row t."""
        ended: Array = self.terminated[t] | self.truncated[t]
        return ended

    def rows(self, n_rows: int) -> Rows:
        """The first rows as tensors."""
        return Rows(**{entry.name: torch.from_numpy(getattr(self, entry.name)[:n_rows]) for entry in fields(self)})


@dataclass
class SegmentArrays:
    """Arrays behind `Segment`, [capacity, N * n_slots]."""

    observation: Tree
    action: Tree
    active: Array
    position: Array
    agent_id: Array
    reward: Array
    actor_done: Array
    is_first: Array
    actor_reward: Array

    @classmethod
    def allocate(cls, step: StepSpec, rows: int, n_envs: int) -> SegmentArrays:
        """Empty segment."""
        width = n_envs * step.n_slots
        flags = {name: np.zeros((rows, width), np.bool_) for name in ("active", "actor_done", "is_first")}
        numbers = {name: np.zeros((rows, width), np.int64) for name in ("position", "agent_id")}
        return cls(
            observation=_allocate_tree(step.observation_space.spaces, rows, width),
            action=_allocate_tree(step.action_space.spaces, rows, width),
            reward=np.zeros((rows, width)),
            actor_reward=np.zeros((rows, width)),
            **flags,
            **numbers,
        )

    def blank(self, n_rows: int) -> None:
        """Overwrite what earlier rollouts left where no act was made in the first rows."""
        nothing = ~self.active[:n_rows]
        trees = [*self.observation.values(), *self.action.values()]
        for array in (*trees, self.position, self.agent_id):
            array[:n_rows][nothing] = 0

    def segment(self, n_rows: int, attributed: bool) -> Segment:
        """The first rows as tensors.

        Args:
            n_rows: How many.
            attributed: Whether the environment attributes rewards to actors.
        """
        return Segment(
            observation=tensors(self.observation, n_rows),
            action=tensors(self.action, n_rows),
            active=torch.from_numpy(self.active[:n_rows]),
            position=torch.from_numpy(self.position[:n_rows]),
            agent_id=torch.from_numpy(self.agent_id[:n_rows]),
            reward=torch.from_numpy(self.reward[:n_rows]),
            actor_done=torch.from_numpy(self.actor_done[:n_rows]),
            is_first=torch.from_numpy(self.is_first[:n_rows]),
            actor_reward=torch.from_numpy(self.actor_reward[:n_rows]) if attributed else None,
        )


class RolloutStorage:
    """Arrays for rollouts of N environments that grow when an environment needs more rows.

    In a flat environment the acts are the rows, so that the segment's reward and the mask of its acts are those of
    the rows.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.
        capacity: Rows to begin with.
    """

    def __init__(self, spec: Spec, n_envs: int, capacity: int) -> None:
        self.spec, self.n_envs, self.capacity = spec, n_envs, capacity
        self.rows = RowArrays.allocate(capacity, n_envs)
        self.segments = {key: SegmentArrays.allocate(step, capacity, n_envs) for key, step in spec.steps.items()}
        if spec.is_flat:
            segment = next(iter(self.segments.values()))
            segment.reward, segment.active = self.rows.reward, self.rows.filled

    def clear(self) -> None:
        """Forget which rows and acts exist."""
        self.rows.filled.fill(False)
        self.rows.terminated.fill(False)
        self.rows.truncated.fill(False)
        self.rows.env_steps.fill(0)
        self.rows.reward.fill(0.0)
        self.rows.first_key.fill(-1)
        self.rows.next_key.fill(-1)
        for segment in self.segments.values():
            segment.active.fill(False)
            segment.reward.fill(0.0)
            segment.actor_reward.fill(0.0)
            segment.is_first.fill(False)
            segment.actor_done.fill(False)

    def grow(self) -> None:
        """Double the number of rows."""
        larger = RolloutStorage(self.spec, self.n_envs, 2 * self.capacity)
        _copy_arrays(self.rows, larger.rows, self.capacity)
        larger_segments: dict[StepKey, SegmentArrays] = larger.segments
        for key, segment in self.segments.items():
            _copy_arrays(segment, larger_segments[key], self.capacity)
        self.rows, self.segments, self.capacity = larger.rows, larger.segments, larger.capacity


def _copy_arrays(source: RowArrays | SegmentArrays, target: RowArrays | SegmentArrays, n_rows: int) -> None:
    for entry in fields(source):
        old, new = getattr(source, entry.name), getattr(target, entry.name)
        for name in old if isinstance(old, dict) else (None,):
            (new if name is None else new[name])[:n_rows] = old if name is None else old[name]
