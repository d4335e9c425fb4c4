"""Preallocated arrays for rollouts."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from maze_pl.core.policy import Array
from maze_pl.core.rows import RowsOf, SegmentOf
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs.vector.vector_env import allocate_tree


class SegmentArrays(SegmentOf[Array]):
    """Arrays behind `Segment`, [capacity, N * n_slots].

    Args:
        step: The sub-step of the acts.
        capacity: Initial number of rows.
        n_envs: Number of environments.
    """

    def __init__(self, step: StepSpec, capacity: int, n_envs: int) -> None:
        shape = (capacity, n_envs * step.n_slots)
        super().__init__(
            observation=allocate_tree(step.observation_space, shape),
            action=allocate_tree(step.action_space, shape),
            active=np.zeros(shape, np.bool_),
            position=np.zeros(shape, np.int64),
            agent_id=np.zeros(shape, np.int64),
            reward=np.zeros(shape, np.float64),
            actor_done=np.zeros(shape, np.bool_),
            is_first=np.zeros(shape, np.bool_),
        )

    def write_policy_state(self, index: Any, policy_state: Mapping[str, Array] | None) -> None:
        """Store the policy state before acts, if there is one.

        Args:
            index: Row, or rows and columns of the acts.
            policy_state: Name -> [n, ...].
        """
        if policy_state is None:
            return
        for name, values in policy_state.items():
            if name not in self.policy_state:
                shape = (*self.active.shape, *values.shape[1:])
                self.policy_state[name] = np.zeros(shape, values.dtype)
            self.policy_state[name][index] = values

    def blank(self, n_rows: int) -> None:
        """Zero the data of earlier rollouts in the first rows, where no act was made."""
        is_missing = ~self.active[:n_rows]
        trees = [*self.observation.values(), *self.action.values(), *self.policy_state.values()]
        for array in (*trees, self.position, self.agent_id):
            array[:n_rows][is_missing] = 0


class RolloutStorage:
    """Arrays for rollouts of N environments, which grow when an environment needs more rows.

    In a flat environment the acts are the rows, so the segment shares the rows' reward and mask.

    Args:
        spec: Specification of observations and actions.
        n_envs: Number of environments.
        capacity: Initial number of rows.
    """

    def __init__(self, spec: Spec, n_envs: int, capacity: int) -> None:
        self.spec = spec
        self.n_envs = n_envs
        self.capacity = capacity
        shape = (capacity, n_envs)
        self.rows: RowsOf[Array] = RowsOf(
            filled=np.zeros(shape, np.bool_),
            reward=np.zeros(shape, np.float64),
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            env_steps=np.zeros(shape, np.int64),
            first_key=np.zeros(shape, np.int64),
            first_slot=np.zeros(shape, np.int64),
            next_key=np.zeros(shape, np.int64),
            next_slot=np.zeros(shape, np.int64),
        )
        self.segments = {key: SegmentArrays(step, capacity, n_envs) for key, step in spec.steps.items()}
        self._share()

    def _share(self) -> None:
        if not self.spec.is_flat:
            return
        for segment in self.segments.values():
            segment.reward = self.rows.reward
            segment.active = self.rows.filled

    def clear(self) -> None:
        """Mark all rows and acts as missing."""
        rows = self.rows
        for array in (rows.filled, rows.terminated, rows.truncated, rows.env_steps, rows.reward):
            array.fill(0)
        for array in (rows.first_key, rows.next_key):
            array.fill(-1)
        for segment in self.segments.values():
            for array in (segment.active, segment.is_first, segment.actor_done):
                array.fill(0)
            segment.reward.fill(0)
            if segment.actor_reward is not None:
                segment.actor_reward.fill(0)

    def attribute(self) -> None:
        """Make room for rewards that the environment attributes to acts."""
        for segment in self.segments.values():
            if segment.actor_reward is None:
                segment.actor_reward = np.zeros(segment.active.shape, np.float64)

    def complete_flat(self, n_rows: int, is_first: Array, agent_id: Array) -> Array:
        """Fill in the row fields of flat environments that follow from the ends of episodes.

        Args:
            n_rows: Rows of each environment, T.
            is_first: [N] whether the first row begins an episode.
            agent_id: [N] ids of the agents.

        Returns:
            [T, N] whether an episode ended.
        """
        rows = self.rows
        (segment,) = self.segments.values()
        ends: Array = rows.terminated[:n_rows] | rows.truncated[:n_rows]
        rows.filled[:n_rows] = True
        rows.first_key[:n_rows] = 0
        rows.next_key[:n_rows] = ends
        np.negative(rows.next_key[:n_rows], out=rows.next_key[:n_rows])  # -1 where there is no next actor
        rows.next_slot[:n_rows] = rows.next_key[:n_rows]
        segment.is_first[0] = is_first
        segment.is_first[1:n_rows] = ends[:-1]
        segment.agent_id[:n_rows] = agent_id
        return ends

    def grow(self) -> None:
        """Make room for twice as many rows."""
        for part in (self.rows, *self.segments.values()):
            vars(part).update(mapped(_doubled, vars(part)))
        self._share()
        self.rows.first_key[self.capacity :] = self.rows.next_key[self.capacity :] = -1
        self.capacity *= 2

    def widen(self, n_slots: Array) -> None:
        """Make room for more slots.

        Args:
            n_slots: [number of step keys] slots of each step key, no fewer than before.
        """
        for segment, wanted in zip(self.segments.values(), n_slots.tolist(), strict=True):
            n_more = wanted - segment.active.shape[1] // self.n_envs
            if n_more:
                widen = partial(_widened, n_envs=self.n_envs, n_more=n_more)
                vars(segment).update(mapped(widen, vars(segment)))


def _doubled(array: Array) -> Array:
    """[T, ...] -> [2 * T, ...], with zeros in the new rows."""
    return np.concatenate([array, np.zeros_like(array)])


def _widened(array: Array, n_envs: int, n_more: int) -> Array:
    """[T, N * n_slots, ...] -> [T, N * (n_slots + n_more), ...], with zeros in the new slots."""
    slots = array.reshape(len(array), n_envs, -1, *array.shape[2:])
    further = np.zeros_like(slots, shape=(*slots.shape[:2], n_more, *slots.shape[3:]))
    return np.concatenate([slots, further], 2).reshape(len(array), -1, *array.shape[2:])
