"""Trajectory processor that adds the outcomes of acts."""

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spaces import mapped
from maze_pl.datasets.trajectory_processors import Array, TrajectoryProcessor
from maze_pl.records.columns import Columns, columns_of, taken
from maze_pl.records.record_files import SpacesTrajectoryRecord


class IdentityWithNextObservationTrajectoryProcessor(TrajectoryProcessor):
    """All acts that have a successor or ended the episode for their actor, with their outcomes.

    For consecutive acts of one actor at environment times t and u, with rewards r_j at times t_j
    between them,

        reward = sum_j gamma ** (t_j - t) * r_j,    discount = gamma ** (u - t),

    as in `maze_pl.core.streams`; where rewards are attributed to actors, `reward` is the act's own.
    The discount is 0 after an act that ended the episode for its actor; its next observation is
    then a copy of its observation, and nothing depends on it. An act is left out if the episode was
    truncated before its actor's next turn, or before its own reward was known.

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
        length = len(record)
        time = record.env_time
        keys = record.spec.step_keys
        last = record.last_actor or ActorID(keys[0], -1)
        n_ids = max(int(record.agent_id.max()), last.agent_id) + 1
        actor = record.key_index * n_ids + record.agent_id  # [L] a number for each actor
        last_actor = keys.index(last.step_key) * n_ids + last.agent_id
        # where there is one actor only, the end of the episode says all
        is_done = np.zeros(length, np.bool_) if record.spec.is_flat else record.actor_done
        successor = _successors(actor)
        successor[is_done] = length
        terminated = (successor == length) & (is_done | record.terminated)
        truncated = (successor == length) & ~terminated
        end_of_step = np.searchsorted(time, time, side="right")
        until = np.where(is_done, end_of_step, successor)
        reward = record.actor_reward
        if reward is None:
            reward = self._rewards(record, until)
        elapsed = np.append(time, record.last_env_time)[successor] - time
        discount = np.power(self.gamma, elapsed, dtype=np.float64)
        outcomes = {
            "reward": reward,
            "discount": np.where(terminated, 0.0, discount),
            "terminated": terminated,
            "truncated": truncated,
        }
        is_kept = (~truncated | (actor == last_actor)) & ~np.isnan(reward)
        columns = columns_of(record)
        for index, (key, fields) in enumerate(columns.items()):
            is_of_key = record.key_index == index
            observation = fields["observation"]
            if record.last_observation and last.step_key == key:
                observation = mapped(_appended, observation, record.last_observation)
            # [L + 1] row of each act in its sub-step, then of the last observation
            row = np.append(np.cumsum(is_of_key) - 1, is_of_key.sum())
            chosen = is_of_key & is_kept
            following = np.where(terminated, row[:-1], row[successor])[chosen]
            columns[key] = taken(fields, is_kept[is_of_key]) | taken(outcomes, chosen)
            columns[key]["next_observation"] = taken(observation, following)
        return columns

    def _rewards(self, record: SpacesTrajectoryRecord, until: Array) -> Array:
        """[L] discounted sum of rewards from each act on, up to but excluding act `until` [L]."""
        time = record.env_time
        reward = np.zeros(len(record))
        distance = 0
        acts = np.arange(len(record))  # whose sums include the reward at this distance
        while len(acts):
            later = acts + distance
            discount = np.power(self.gamma, time[later] - time[acts], dtype=np.float64)
            reward[acts] += discount * record.reward[later]
            distance += 1
            acts = acts[acts + distance < until[acts]]
        return reward


def _successors(actor: Array) -> Array:
    """[L] next act of the same actor, L if there is none; from the actors [L] of the acts."""
    order = np.argsort(actor, kind="stable")
    is_same = actor[order[1:]] == actor[order[:-1]]
    successor = np.full(len(actor), len(actor))
    successor[order[:-1][is_same]] = order[1:][is_same]
    return successor


def _appended(array: Array, last: Array) -> Array:
    """[n, ...] and [...] -> [n + 1, ...]."""
    return np.concatenate([array, last[None]])
