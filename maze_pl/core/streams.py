"""From the acts of a rollout to one stream of decisions for each actor: rewards and discounts between its acts.

Let r be the rewards that `env.step` returned and g the product of `gamma ** env_steps` over the rows that ended between
two moments. For two acts i and i + 1 of the same actor

    R_i = sum of g(act i, reward) * r over the rewards from act i up to act i + 1,    D_i = g(act i, act i + 1),

so that sub-steps of one environment step are not discounted against each other. Where the environment attributes
rewards to actors, R_i is the reward attributed to act i. An actor that does not act again before termination is
terminal; one that is done early ends its own stream with the environment step in which it was done.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.rollout import Rollout

Array = np.ndarray[Any, np.dtype[Any]]

_NEXT, _FINAL, _TERMINAL, _OPEN = 0, 1, 2, 3


@dataclass
class Streams:
    """The acts of one step key as streams: column b holds the acts of slot b in the order in which they were made.

    Attributes:
        row: [L, B] int64, the act's row in the rollout, -1 for padding at the end of a column.
        reward: [L, B] float64, R_i.
        discount: [L, B] float64, D_i; 0 where terminated.
        terminated: [L, B] bool, nothing follows because the episode or the actor ended.
        cut: [L, B] bool, the next entry of the column does not continue this one, or carries no estimate of its own.
        final: [L, B] int64, index of the final observation that is the successor, -1 where there is none.
        open: [L, B] bool, the successor observation does not exist: the act bootstraps its predecessor with its own
            value and has no weight itself.
    """

    row: Tensor
    reward: Tensor
    discount: Tensor
    terminated: Tensor
    cut: Tensor
    final: Tensor
    open: Tensor


@dataclass
class _Links:
    """[T, N, A]: reward, discount and successor of each act, for A slots over all step keys."""

    reward: Array
    discount: Array
    successor: Array
    final: Array


def act_streams(rollout: Rollout, gamma: float) -> dict[StepKey, Streams]:
    """The streams of all step keys.

    Args:
        rollout: What was collected.
        gamma: Discount of one unit of environment time.
    """
    keys = list(rollout.segments)
    n_slots = [rollout.n_slots(key) for key in keys]
    offsets = np.concatenate([[0], np.cumsum(n_slots)]).tolist()
    links = _link(rollout, gamma, keys, offsets)
    streams = {}
    for key, start, stop in zip(keys, offsets[:-1], offsets[1:], strict=True):
        streams[key] = _dense(rollout, key, links, start, stop)
    return streams


def _numpy(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array


def _link(rollout: Rollout, gamma: float, keys: list[StepKey], offsets: list[int]) -> _Links:
    """Walk the rollout backwards and find what lies between each act and the next of the same actor."""
    rows = rollout.rows
    filled, terminated, truncated = _numpy(rows.filled), _numpy(rows.terminated), _numpy(rows.truncated)
    env_steps = _numpy(rows.env_steps)
    n_rows, n_envs = filled.shape
    n_actors = offsets[-1]
    actor_at, reward_at, done_at = _tabulate(rollout, keys, offsets)
    final_actor, final_index = _final_actors(rollout, keys, offsets)
    shape = (n_rows, n_envs, n_actors)
    links = _Links(np.zeros(shape), np.zeros(shape), np.full(shape, _OPEN), np.full(shape, -1))
    reward, discount = np.zeros((n_envs, n_actors)), np.ones((n_envs, n_actors))
    successor, final = np.full((n_envs, n_actors), _OPEN), np.full((n_envs, n_actors), -1)
    rest = np.zeros(n_envs)  # reward from here to the end of the environment step
    for t in range(n_rows - 1, -1, -1):
        dead = filled[t] & terminated[t]
        reward[dead], discount[dead], successor[dead], final[dead] = 0.0, 0.0, _TERMINAL, -1
        stopped = filled[t] & truncated[t] & ~terminated[t]
        reward[stopped], discount[stopped], successor[stopped], final[stopped] = 0.0, 1.0, _OPEN, -1
        followed = np.flatnonzero(final_actor[t] >= 0)
        successor[followed, final_actor[t, followed]] = _FINAL
        final[followed, final_actor[t, followed]] = final_index[t, followed]
        factor = np.where(filled[t], gamma ** env_steps[t].astype(np.float64), 1.0)[:, None]
        reward *= factor
        discount *= factor
        rest[filled[t] & ((env_steps[t] > 0) | terminated[t] | truncated[t])] = 0.0
        for p in range(actor_at.shape[1] - 1, -1, -1):
            envs = np.flatnonzero(actor_at[t, p] >= 0)
            actors = actor_at[t, p, envs]
            reward[envs] += reward_at[t, p, envs][:, None]
            rest[envs] += reward_at[t, p, envs]
            done = done_at[t, p, envs]
            links.reward[t, envs, actors] = np.where(done, rest[envs], reward[envs, actors])
            links.discount[t, envs, actors] = np.where(done, 0.0, discount[envs, actors])
            links.successor[t, envs, actors] = np.where(done, _TERMINAL, successor[envs, actors])
            links.final[t, envs, actors] = np.where(done, -1, final[envs, actors])
            reward[envs, actors], discount[envs, actors] = 0.0, 1.0
            successor[envs, actors], final[envs, actors] = _NEXT, -1
    return links


def _tabulate(rollout: Rollout, keys: list[StepKey], offsets: list[int]) -> tuple[Array, Array, Array]:
    """[T, P, N] actor (-1: none), reward and whether the actor was done, by position in the row."""
    n_rows, n_envs = rollout.rows.filled.shape
    width = 1
    for segment in rollout.segments.values():
        position = _numpy(segment.position)[_numpy(segment.active)]
        width = max(width, int(position.max(initial=0)) + 1)
    actor_at = np.full((n_rows, width, n_envs), -1)
    reward_at = np.zeros((n_rows, width, n_envs))
    done_at = np.zeros((n_rows, width, n_envs), bool)
    for key, start in zip(keys, offsets, strict=False):
        segment, n_slots = rollout.segments[key], rollout.n_slots(key)
        times, columns = np.nonzero(_numpy(segment.active))
        index = times, _numpy(segment.position)[times, columns], columns // n_slots
        actor_at[index] = start + columns % n_slots
        reward_at[index] = _numpy(segment.reward)[times, columns]
        done_at[index] = _numpy(segment.actor_done)[times, columns]
    return actor_at, reward_at, done_at


def _final_actors(rollout: Rollout, keys: list[StepKey], offsets: list[int]) -> tuple[Array, Array]:
    """[T, N] actor whose observation follows the row (-1: none) and its place among the finals of its key."""
    shape = tuple(rollout.rows.filled.shape)
    actor, index = np.full(shape, -1), np.full(shape, -1)
    for key, start in zip(keys, offsets, strict=False):
        final = rollout.finals[key]
        at = _numpy(final.row), _numpy(final.env)
        slot = _numpy(final.slot)
        actor[at] = np.where(slot >= 0, start + slot, -1)
        index[at] = np.arange(len(slot))
    return actor, index


def _dense(rollout: Rollout, key: StepKey, links: _Links, start: int, stop: int) -> Streams:
    """Gather the acts of each slot of a step key to the top of its column."""
    active = _numpy(rollout.segments[key].active)
    columns, times = np.nonzero(active.T)  # by column, then by time
    place = np.arange(len(times)) - np.concatenate([[0], np.cumsum(active.sum(0))])[columns]
    length = max(1, int(active.sum(0).max(initial=0)))
    shape = (length, active.shape[1])
    source = times, columns // (stop - start), start + columns % (stop - start)

    def gather(values: Array, padding: float) -> Array:
        dense = np.full(shape, padding, values.dtype)
        dense[place, columns] = values[source]
        return dense

    row = np.full(shape, -1)
    row[place, columns] = times
    reward, discount = gather(links.reward, 0.0), gather(links.discount, 0.0)
    successor = gather(links.successor, _TERMINAL)
    is_open = successor == _OPEN
    followed_by_open = np.concatenate([is_open[1:], np.zeros_like(is_open[:1])])
    cut = (successor != _NEXT) | followed_by_open
    attributed = rollout.segments[key].actor_reward
    if attributed is not None:
        reward = np.where(row >= 0, np.take_along_axis(_numpy(attributed), np.maximum(row, 0), 0), 0.0)
    fields = (row, reward, discount, successor == _TERMINAL, cut, gather(links.final, -1), is_open)
    return Streams(*(torch.from_numpy(np.ascontiguousarray(field)) for field in fields))
