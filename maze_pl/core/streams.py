"""Conversion of rollouts to a stream of acts per actor, with the rewards and discounts in between.

Let r be the rewards that `env.step` returned and g the product of `gamma ** env_steps` over the
rows that ended between two moments. For consecutive acts i and i + 1 of the same actor

    R_i = sum of g(act i, reward) * r over the rewards from act i up to act i + 1,    D_i = g(act i, act i + 1),

so that sub-steps of one environment step are not discounted against each other. If the environment
attributes rewards to actors, R_i is the reward attributed to act i. An act is terminal if its actor
does not act again before termination. The stream of an actor that is done early ends with the
environment step in which it was done.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout

Array = np.ndarray[Any, np.dtype[Any]]

_NEXT = 0
_FINAL = 1
_TERMINAL = 2
_OPEN = 3


@dataclass
class Streams:
    """The acts of one step key as streams: column b holds the acts of slot b in time order.

    Attributes:
        row: [L, B] int64, the act's row in the rollout, -1 for padding at the end of a column.
        reward: [L, B] float64, R_i.
        discount: [L, B] float64, D_i; 0 where terminated.
        terminated: [L, B] bool, nothing follows because the episode or the actor ended.
        cut: [L, B] bool, the next entry of the column does not continue this one, or is open and so
            has no estimate.
        final: [L, B] int64, index of the final observation that is the successor, -1 if there is
            none.
        open: [L, B] bool, the successor observation does not exist: the value of the act bootstraps
            its predecessor, and the act itself has no weight.
    """

    row: Tensor
    reward: Tensor
    discount: Tensor
    terminated: Tensor
    cut: Tensor
    final: Tensor
    open: Tensor


def act_streams(rollout: Rollout, gamma: float) -> dict[StepKey, Streams]:
    """Convert a rollout to the streams of all step keys.

    Args:
        rollout: The rollout.
        gamma: Discount of one unit of environment time.
    """
    offsets = np.cumsum([0, *map(rollout.n_slots, rollout.segments)]).tolist()
    links, places = (
        _link(rollout, gamma, offsets),
        zip(rollout.segments, pairwise(offsets), strict=True),
    )
    return {key: _dense(rollout, key, links, start, stop) for key, (start, stop) in places}


def dense_streams(rollout: Rollout, gamma: float) -> dict[StepKey, Streams]:
    """Convert a dense rollout to the streams of all step keys, without waiting for its device.

    Acts of the first sub-step are followed by a final observation where an episode or the rollout
    ends; there, acts of later sub-steps are open.

    Args:
        rollout: A rollout whose rows consist of one act of each step key in their order.
        gamma: Discount of one unit of environment time.
    """
    rows = rollout.rows
    terminated = rows.terminated
    stops = rows.truncated.clone()
    stops[-1] = True
    stops &= ~terminated
    continues = ~(terminated | stops)
    factor = gamma ** rows.env_steps.double()
    reward = torch.stack([segment.reward.double() for segment in rollout.segments.values()])  # [K, T, N]
    to_end_of_row = reward.flip(0).cumsum(0).flip(0)
    earlier_in_row = torch.cat([torch.zeros_like(reward[:1]), reward.cumsum(0)[:-1]])
    row = torch.arange(len(terminated), device=terminated.device)[:, None].expand_as(terminated)
    streams = {}
    for place, (key, segment) in enumerate(rollout.segments.items()):
        is_open = stops if place else torch.zeros_like(stops)
        until_next = to_end_of_row[place] + torch.where(continues, factor * next_rows(earlier_in_row[place]), 0.0)
        final = torch.full_like(row, -1)
        if place == 0:
            end = rollout.finals[key]
            final = final.index_put((end.row, end.env), torch.arange(len(end.row), device=row.device))
            final = torch.where(stops, final, -1)
        streams[key] = Streams(
            row,
            until_next if segment.actor_reward is None else segment.actor_reward.double(),
            torch.where(terminated, 0.0, factor),
            terminated,
            ~continues | next_rows(is_open),
            final,
            is_open,
        )
    return streams


def next_rows(x: Tensor) -> Tensor:
    """[T, ...] entries of the next row, 0 at the last one."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


def _numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu())


def _link(rollout: Rollout, gamma: float, offsets: list[int]) -> list[Array]:
    """Go through the rollout backwards and link each act to the next act of the same actor.

    Returns:
        [T, N, A]: reward, discount, successor of each act and its index among the finals, for A
        slots over all step keys; `offsets` has the first slot of each step key.
    """
    rows = rollout.rows
    filled = _numpy(rows.filled)
    terminated = _numpy(rows.terminated)
    truncated = _numpy(rows.truncated)
    env_steps = _numpy(rows.env_steps)
    shape = (*filled.shape, offsets[-1])
    actor_at, reward_at, done_at, final_actor, final_index = _tabulate(rollout, offsets)
    at_end = 0.0, 1.0, _OPEN, -1
    links: list[Array] = [np.full(shape, value) for value in at_end]
    reward, discount, successor, final = since = [np.full(shape[1:], value) for value in at_end]
    rest = np.zeros(shape[1])  # reward from here to the end of the environment step
    for t in range(shape[0] - 1, -1, -1):
        dead = filled[t] & terminated[t]
        reward[dead] = 0.0
        discount[dead] = 0.0
        successor[dead] = _TERMINAL
        final[dead] = -1
        stopped = filled[t] & truncated[t] & ~terminated[t]
        reward[stopped], discount[stopped], successor[stopped], final[stopped] = at_end
        followed = np.flatnonzero(final_actor[t] >= 0)
        successor[followed, final_actor[t, followed]] = _FINAL
        final[followed, final_actor[t, followed]] = final_index[t, followed]
        factor = np.where(filled[t], gamma ** env_steps[t].astype(np.float64), 1.0)[:, None]
        reward *= factor
        discount *= factor
        rest[filled[t] & ((env_steps[t] > 0) | terminated[t] | truncated[t])] = 0.0
        for p in range(actor_at.shape[1] - 1, -1, -1):
            envs = np.flatnonzero(actor_at[t, p] >= 0)
            actors, done = actor_at[t, p, envs], done_at[t, p, envs]
            reward[envs] += reward_at[t, p, envs][:, None]
            rest[envs] += reward_at[t, p, envs]
            ends: tuple[Any, ...] = rest[envs], 0.0, _TERMINAL, -1
            for link, values, at_done, new in zip(links, since, ends, (0.0, 1.0, _NEXT, -1), strict=True):
                link[t, envs, actors] = np.where(done, at_done, values[envs, actors])
                values[envs, actors] = new
    return links


def _tabulate(rollout: Rollout, offsets: list[int]) -> tuple[Array, ...]:
    """Tabulate acts and final observations by time.

    Returns:
        [T, P, N] actor (-1: none), reward and whether the actor was done, by position in the row;
        [T, N] actor whose observation follows the row (-1: none) and its index among the finals of
        its key.
    """
    shape = n_rows, n_envs = tuple(rollout.rows.filled.shape)
    width = 1 + max(int((segment.position * segment.active).max()) for segment in rollout.segments.values())
    actor_at, final_actor, final_index = (np.full(size, -1) for size in ((n_rows, width, n_envs), shape, shape))
    reward_at, done_at = np.zeros(actor_at.shape), np.zeros(actor_at.shape, bool)
    for (key, segment), start in zip(rollout.segments.items(), offsets, strict=False):
        times, columns = np.nonzero(_numpy(segment.active))
        index = times, _numpy(segment.position)[times, columns], columns // rollout.n_slots(key)
        actor_at[index] = start + columns % rollout.n_slots(key)
        reward_at[index] = _numpy(segment.reward)[times, columns]
        done_at[index] = _numpy(segment.actor_done)[times, columns]
        at = _numpy(rollout.finals[key].row), _numpy(rollout.finals[key].env)
        slot = _numpy(rollout.finals[key].slot)
        final_actor[at] = np.where(slot >= 0, start + slot, -1)
        final_index[at] = np.arange(len(slot))
    return actor_at, reward_at, done_at, final_actor, final_index


def _dense(rollout: Rollout, key: StepKey, links: list[Array], start: int, stop: int) -> Streams:
    """Gather the acts of each slot of a step key to the top of its column."""
    active = _numpy(rollout.segments[key].active)
    columns, times = np.nonzero(active.T)  # by column, then by time
    place = np.arange(len(times)) - np.concatenate([[0], np.cumsum(active.sum(0))])[columns]
    shape = (max(1, int(active.sum(0).max(initial=0))), active.shape[1])
    source = times, columns // (stop - start), start + columns % (stop - start)

    def gather(values: Any, padding: float) -> Array:
        dense = np.full(shape, padding, values.dtype)
        dense[place, columns] = values
        return dense

    row = gather(times, -1)
    fill = zip(links, (0.0, 0.0, _TERMINAL, -1), strict=True)
    reward, discount, successor, final = (gather(link[source], padding) for link, padding in fill)
    is_open = successor == _OPEN
    followed_by_open = np.concatenate([is_open[1:], np.zeros_like(is_open[:1])])
    cut = (successor != _NEXT) | followed_by_open
    attributed = rollout.segments[key].actor_reward
    if attributed is not None:
        reward = np.where(row >= 0, np.take_along_axis(_numpy(attributed), np.maximum(row, 0), 0), 0.0)
    fields = (row, reward, discount, successor == _TERMINAL, cut, final, is_open)
    return Streams(*(torch.from_numpy(np.ascontiguousarray(field)) for field in fields))
