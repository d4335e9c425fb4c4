"""Trajectory processors, which select the acts of an episode to learn from and add fields."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns, columns_of, taken
from maze_pl.records.record_files import SpacesTrajectoryRecord

Array = np.ndarray[Any, np.dtype[Any]]


class TrajectoryProcessor(ABC):
    """Turns episodes into training data; configurations name it by its class path.

    Example:
        >>> class EveryOther(TrajectoryProcessor):
        ...     def process(self, record):
        ...         return {key: taken(columns, slice(None, None, 2)) for key, columns in columns_of(record).items()}
    """

    @abstractmethod
    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """Return the acts of an episode to learn from.

        Returns:
            For each sub-step, the fields of `TransitionBatch` as arrays `[n, ...]`; the same fields for each
            episode.
        """


class IdentityTrajectoryProcessor(TrajectoryProcessor):
    """All acts, as they were recorded."""

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """See `columns_of`."""
        return columns_of(record)


class DeadEndClippingTrajectoryProcessor(TrajectoryProcessor):
    """Drops the last steps of terminated episodes, where the end could no longer be averted.

    Truncated episodes, such as by a time limit, are left unchanged.

    Args:
        clip_k: Number of environment steps to drop at the end.

    Raises:
        ValueError: `clip_k` is negative.
    """

    def __init__(self, clip_k: int) -> None:
        if clip_k < 0:
            raise ValueError(f"clip_k={clip_k} must be at least 0, the environment steps that are left out at the end")
        self.clip_k = clip_k

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """Return the acts before the dead end, possibly no acts at all."""
        columns = columns_of(record)
        if not record.terminated:
            return columns
        kept = record.env_time < record.last_env_time - self.clip_k
        return {key: taken(columns[key], kept[record.key_index == i]) for i, key in enumerate(columns)}


class IdentityWithNextObservationTrajectoryProcessor(TrajectoryProcessor):
    """All acts that have a successor or ended the episode for their actor, with their outcomes.

    For consecutive acts of one actor at environment times t and u, with rewards r_j at times t_j
    between them,

        reward = sum_j gamma ** (t_j - t) * r_j,    discount = gamma ** (u - t),

    as in `maze_pl.core.streams`; where rewards are attributed to actors, `reward` is the act's own.
    The discount is 0 after an act that ended the episode for its actor; its next observation is
    then a copy of its observation, and nothing depends on it. An act is left out if the episode was
    truncated before its actor's next turn.

    Args:
        gamma: Discount of an environment step.

    Raises:
        ValueError: `gamma` is not between 0 and 1.
    """

    def __init__(self, gamma: float = 0.99) -> None:
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma={gamma} must be between 0 and 1")
        self.gamma = gamma

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """See `columns_of`; adds the fields that follow `agent_id` in `TransitionBatch`."""
        length, time, keys = len(record), record.env_time, record.spec.step_keys
        last = record.last_actor or ActorID(keys[0], -1)
        n_ids = max(int(record.agent_id.max()), last.agent_id) + 1
        actor = record.key_index * n_ids + record.agent_id
        order = np.argsort(actor, kind="stable")
        is_same = actor[order[1:]] == actor[order[:-1]]
        successor = np.full(length, length)  # [L] next act of the same actor, L if there is none
        successor[order[:-1][is_same]] = order[1:][is_same]
        successor[record.actor_done] = length
        terminated = (successor == length) & (record.actor_done | record.terminated)
        truncated = (successor == length) & ~terminated
        until = np.where(record.actor_done, np.searchsorted(time, time, side="right"), successor)
        between = np.append(time, record.last_env_time)[successor] - time
        outcomes = {
            "reward": self._rewards(record, until) if record.actor_reward is None else record.actor_reward,
            "discount": np.where(terminated, 0.0, np.power(self.gamma, between, dtype=np.float64)),
            "terminated": terminated,
            "truncated": truncated,
        }
        is_kept = ~truncated | (actor == keys.index(last.step_key) * n_ids + last.agent_id)
        columns = columns_of(record)
        for index, (key, fields) in enumerate(columns.items()):
            mine, seen = record.key_index == index, fields["observation"]
            if record.last_observation and last.step_key == key:
                seen = mapped(lambda array, end: np.concatenate([array, end[None]]), seen, record.last_observation)
            place = np.append(np.cumsum(mine) - 1, mine.sum())  # [L + 1] row of each act, then of the last observation
            following = np.where(terminated, place[:-1], place[successor])[mine & is_kept]
            columns[key] = taken(fields, is_kept[mine]) | taken(outcomes, mine & is_kept)
            columns[key]["next_observation"] = taken(seen, following)
        return columns

    def _rewards(self, record: SpacesTrajectoryRecord, until: Array) -> Array:
        """[L] discounted sum of rewards from each act on, up to but excluding act `until` [L]."""
        reward, time, distance, begun = np.zeros(len(record)), record.env_time, 0, np.arange(len(record))
        while len(begun):
            later = begun + distance
            reward[begun] += np.power(self.gamma, time[later] - time[begun], dtype=np.float64) * record.reward[later]
            distance += 1
            begun = begun[begun + distance < until[begun]]
        return reward
