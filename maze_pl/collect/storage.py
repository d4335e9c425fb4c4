"""Preallocated arrays that a collector writes a rollout into."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from maze_pl.core.rollout import RowsOf, Segment, SegmentOf
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.vector.vector_env import allocate_tree

Array = np.ndarray[Any, np.dtype[Any]]


def tensors(arrays: Any, n_rows: int | None = None) -> Any:
    """Tensors on the first rows of the arrays in nested dicts, on all of them if None."""
    return mapped(lambda array: torch.from_numpy(array[:n_rows]), arrays)


class SegmentArrays(SegmentOf[Array]):
    """Arrays behind `Segment`, [capacity, N * n_slots].

    Args:
        step: The sub-step whose acts these are.
        capacity: Rows to begin with.
        n_envs: Number of environments.
    """

    actor_reward: Array

    def __init__(self, step: StepSpec, capacity: int, n_envs: int) -> None:
        shape = capacity, n_envs * step.n_slots
        seen, done = (allocate_tree(space, shape) for space in (step.observation_space, step.action_space))
        active, actor_done, is_first = np.zeros((3, *shape), np.bool_)
        (position, agent_id), (reward, actor_reward) = np.zeros((2, *shape), np.int64), np.zeros((2, *shape))
        super().__init__(seen, done, active, position, agent_id, reward, actor_done, is_first, actor_reward)

    def remember(self, index: Any, state: Mapping[str, Array] | None) -> None:
        """Write the policy's state before acts, if it has one.

        Args:
            index: Row, or rows and columns of the acts.
            state: Name -> [n, ...].
        """
        for name, values in (state or {}).items():
            if name not in self.state:
                self.state[name] = np.zeros((*self.active.shape, *values.shape[1:]), values.dtype)
            self.state[name][index] = values

    def blank(self, n_rows: int) -> None:
        """Overwrite what earlier rollouts left where no act was made in the first rows."""
        nothing = ~self.active[:n_rows]
        trees = [*self.observation.values(), *self.action.values(), *self.state.values()]
        for array in (*trees, self.position, self.agent_id):
            array[:n_rows][nothing] = 0

    def segment(self, n_rows: int, attributed: bool) -> Segment:
        """The first rows as tensors.

        Args:
            n_rows: How many.
            attributed: Whether the environment attributes rewards to actors.
        """
        segment = Segment(**tensors(vars(self), n_rows))
        return segment if attributed else replace(segment, actor_reward=None)


class RolloutStorage:
    """Arrays for rollouts of N environments, of which there can be more when an environment needs more rows.

    In a flat environment the acts are the rows, so that the segment's reward and the mask of its acts are those of
    the rows.

    Args:
        spec: What agents see and do.
        n_envs: Number of environments.
        capacity: Rows to begin with.
    """

    def __init__(self, spec: Spec, n_envs: int, capacity: int) -> None:
        self.spec, self.n_envs, self.capacity = spec, n_envs, capacity
        shape = capacity, n_envs
        filled, terminated, truncated = np.zeros((3, *shape), np.bool_)
        env_steps, first_slot, next_slot = np.zeros((3, *shape), np.int64)
        ends, (first_key, next_key) = (terminated, truncated), np.full((2, *shape), -1)
        numbers = env_steps, first_key, first_slot, next_key, next_slot
        self.rows: RowsOf[Array] = RowsOf(filled, np.zeros(shape), *ends, *numbers)
        self.segments = {key: SegmentArrays(step, capacity, n_envs) for key, step in spec.steps.items()}
        self._share()

    def _share(self) -> None:
        for segment in self.segments.values() if self.spec.is_flat else ():
            segment.reward, segment.active = self.rows.reward, self.rows.filled

    def clear(self) -> None:
        """Forget which rows and acts exist."""
        rows = self.rows
        for array in (rows.filled, rows.terminated, rows.truncated, rows.env_steps, rows.reward):
            array.fill(0)
        for array in (rows.first_key, rows.next_key):
            array.fill(-1)
        for part in self.segments.values():
            for array in (part.active, part.reward, part.actor_reward, part.is_first, part.actor_done):
                array.fill(0)

    def complete_flat(self, n_rows: int, is_first: Array, agent_id: Array) -> Array:
        """Write into rows of flat environments what follows from where episodes ended.

        Args:
            n_rows: Rows of each environment, T.
            is_first: [N] whether the first row begins an episode.
            agent_id: [N] who acts.

        Returns:
            [T, N] whether an episode ended.
        """
        rows, (segment,) = self.rows, self.segments.values()
        ends: Array = rows.terminated[:n_rows] | rows.truncated[:n_rows]
        rows.filled[:n_rows] = True
        rows.first_key[:n_rows] = 0
        rows.next_key[:n_rows] = np.where(ends, -1, 0)
        rows.next_slot[:n_rows] = np.where(ends, -1, 0)
        segment.is_first[0] = is_first
        segment.is_first[1:n_rows] = ends[:-1]
        segment.agent_id[:n_rows] = agent_id
        return ends

    def grow(self) -> None:
        """Make room for twice as many rows."""
        for part in (self.rows, *self.segments.values()):
            vars(part).update(mapped(lambda array: np.concatenate([array, np.zeros_like(array)]), vars(part)))
        self._share()
        self.rows.first_key[self.capacity :] = self.rows.next_key[self.capacity :] = -1
        self.capacity *= 2
