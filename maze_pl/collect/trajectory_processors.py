"""What becomes of a recorded episode before it is learned from: which of its acts count, and with what beside them."""

from abc import ABC, abstractmethod
from typing import Any, cast

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.records import SpacesTrajectoryRecord
from maze_pl.core.spaces import mapped

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Any]
"""Fields of `Acts`, as arrays, or trees of arrays, of equal length."""


def columns_of(record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
    """Observation, action and agent of each act, by sub-step; views of the record where it is possible."""
    keys, is_single = record.spec.step_keys, len(record.spec.steps) == 1
    ids = {key: record.agent_id if is_single else record.agent_id[record.key_index == i] for i, key in enumerate(keys)}
    names = "observation", "action", "agent_id"
    return {key: dict(zip(names, (record.observation[key], record.action[key], ids[key]), strict=True)) for key in keys}


def taken(columns: Columns, rows: Any) -> Columns:
    """Some of the rows of a tree of arrays."""
    return cast(Columns, mapped(lambda array: array[rows], columns))


class TrajectoryProcessor(ABC):
    """Turns episodes into what is learned from; configurations name it by its class path.

    Example:
        >>> class EveryOther(TrajectoryProcessor):
        ...     def process(self, record):
        ...         return {key: taken(columns, slice(None, None, 2)) for key, columns in columns_of(record).items()}
    """

    @abstractmethod
    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """The acts of an episode that are learned from.

        Returns:
            For each sub-step, the fields of `Acts` as arrays `[n, ...]`; the same ones for each episode.
        """


class IdentityTrajectoryProcessor(TrajectoryProcessor):
    """All acts, as they were recorded."""

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """See `columns_of`."""
        return columns_of(record)


class DeadEndClippingTrajectoryProcessor(TrajectoryProcessor):
    """Leaves out how episodes that were terminated came to their end: what could not be averted any more.

    Episodes that were cut off, by a time limit for instance, are left as they are.

    Args:
        clip_k: How many environment steps before the end are left out.

    Raises:
        ValueError: That is a negative number.
    """

    def __init__(self, clip_k: int) -> None:
        if clip_k < 0:
            raise ValueError(f"clip_k={clip_k} must be at least 0, the environment steps that are left out at the end")
        self.clip_k = clip_k

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """The acts before the dead end, which may be none."""
        columns = columns_of(record)
        if not record.terminated:
            return columns
        kept = record.env_time < record.last_env_time - self.clip_k
        return {key: taken(columns[key], kept[record.key_index == i]) for i, key in enumerate(columns)}


class IdentityWithNextObservationTrajectoryProcessor(TrajectoryProcessor):
    """All acts that have a successor, or that ended the episode for their actor, and what came of them.

    For two acts of the same actor at the environment times t and u, between which the rewards r_j came at times t_j,

        reward = sum_j gamma ** (t_j - t) * r_j,    discount = gamma ** (u - t),

    as in `maze_pl.core.streams`; where rewards are attributed to actors, `reward` is the act's own. The discount is 0
    after an act that ended the episode for its actor; its next observation is then its own, which nothing depends on.
    An act after which the episode was cut off before its actor's turn is left out.

    Args:
        gamma: Discount of an environment step.

    Raises:
        ValueError: It is none.
    """

    def __init__(self, gamma: float = 0.99) -> None:
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma={gamma} must be between 0 and 1")
        self.gamma = gamma

    def process(self, record: SpacesTrajectoryRecord) -> dict[StepKey, Columns]:
        """See `columns_of`, with the fields that follow `agent_id` in `Acts`."""
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
        """[L] discounted sum of the rewards of each act and of those that follow, up to `until` [L]."""
        reward, time, distance, begun = np.zeros(len(record)), record.env_time, 0, np.arange(len(record))
        while len(begun):
            later = begun + distance
            reward[begun] += np.power(self.gamma, time[later] - time[begun], dtype=np.float64) * record.reward[later]
            distance += 1
            begun = begun[begun + distance < until[begun]]
        return reward
