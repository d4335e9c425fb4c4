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
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout

Array = np.ndarray[Any, np.dtype[Any]]

# kinds of successors of an act
_NEXT = 0  # the next act of the same slot
_FINAL = 1  # a final observation
_TERMINAL = 2  # nothing: the episode or the actor ended
_OPEN = 3  # an observation that does not exist


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
    links = _link(rollout, gamma, offsets)
    streams = {}
    for key, (start, stop) in zip(rollout.segments, pairwise(offsets), strict=True):
        streams[key] = _in_columns(rollout, key, links, start, stop)
    return streams


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
    rewards = [segment.reward.double() for segment in rollout.segments.values()]  # [T, N] each
    # `torch.cumsum` of floats is not reproducible on a GPU.
    to_end_of_row = list(accumulate(reversed(rewards)))[::-1]
    earlier_in_row = [torch.zeros_like(rewards[0]), *accumulate(rewards[:-1])]
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
            row=row,
            reward=until_next if segment.actor_reward is None else segment.actor_reward.double(),
            discount=torch.where(terminated, 0.0, factor),
            terminated=terminated,
            cut=~continues | next_rows(is_open),
            final=final,
            open=is_open,
        )
    return streams


def next_rows(x: Tensor) -> Tensor:
    """[T, ...] entries of the next row, 0 at the last one."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


def _numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu())


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


@dataclass
class _Links:
    """The links from acts to their successors: arrays of one shape, with an entry for each act.

    Attributes:
        reward: float64, sum of the discounted rewards up to the successor.
        discount: float64, discount of the successor's value.
        successor: int64, kind of the successor, such as `_NEXT`.
        final: int64, index of the final observation that is the successor, -1 if there is none.
    """

    reward: Array
    discount: Array
    successor: Array
    final: Array

    @classmethod
    def open_ended(cls, shape: tuple[int, ...]) -> "_Links":
        """Make links to observations that do not exist, as at the end of the rollout."""
        return cls(np.zeros(shape), np.ones(shape), np.full(shape, _OPEN), np.full(shape, -1))

    def take(self, index: Any) -> "_Links":
        """Return copies of the entries at an index."""
        return _Links(self.reward[index], self.discount[index], self.successor[index], self.final[index])

    def put(self, index: Any, links: "_Links") -> None:
        """Replace the entries at an index."""
        self._set(index, links.reward, links.discount, links.successor, links.final)

    def lead_to_next_act(self, index: Any) -> None:
        """Let entries lead to the act of this moment, with no reward in between yet."""
        self._set(index, 0.0, 1.0, _NEXT)

    def lead_nowhere(self, index: Any) -> None:
        """Let entries lead to an observation that does not exist, with no reward in between."""
        self._set(index, 0.0, 1.0, _OPEN)

    def terminate(self, index: Any, reward: Array | float) -> None:
        """Let entries end without a successor, after a reward."""
        self._set(index, reward, 0.0, _TERMINAL)

    def lead_to_final(self, index: Any, final: Array) -> None:
        """Let entries lead to final observations; rewards and discounts stay as they are."""
        self.successor[index] = _FINAL
        self.final[index] = final

    def apply_discount(self, factor: Array) -> None:
        """Multiply rewards and discounts by a factor, as a row lies before them."""
        self.reward *= factor
        self.discount *= factor

    def _set(
        self,
        index: Any,
        reward: Array | float,
        discount: Array | float,
        successor: Array | int,
        final: Array | int = -1,
    ) -> None:
        self.reward[index] = reward
        self.discount[index] = discount
        self.successor[index] = successor
        self.final[index] = final


def _link(rollout: Rollout, gamma: float, offsets: list[int]) -> _Links:
    """Go through the rollout backwards and link each act to the next act of the same actor.

    Returns:
        [T, N, A] links of the acts, for A slots over all step keys; `offsets` has the first slot
        of each step key.
    """
    rows = rollout.rows
    filled = _numpy(rows.filled)
    terminated = _numpy(rows.terminated)
    truncated = _numpy(rows.truncated)
    env_steps = _numpy(rows.env_steps)
    acts = _tabulate(rollout, offsets)
    n_rows, n_envs = filled.shape
    links = _Links.open_ended((n_rows, n_envs, offsets[-1]))
    onwards = _Links.open_ended((n_envs, offsets[-1]))  # from the current moment, for each slot
    rest = np.zeros(n_envs)  # reward from here to the end of the environment step
    for t in range(n_rows - 1, -1, -1):
        onwards.terminate(filled[t] & terminated[t], 0.0)
        onwards.lead_nowhere(filled[t] & truncated[t] & ~terminated[t])
        followed = np.flatnonzero(acts.final_actor[t] >= 0)
        actors = acts.final_actor[t, followed]
        onwards.lead_to_final((followed, actors), acts.final_index[t, followed])
        factor = np.where(filled[t], gamma ** env_steps[t].astype(np.float64), 1.0)
        onwards.apply_discount(factor[:, None])
        rest[filled[t] & ((env_steps[t] > 0) | terminated[t] | truncated[t])] = 0.0
        for p in range(acts.actor.shape[1] - 1, -1, -1):
            envs = np.flatnonzero(acts.actor[t, p] >= 0)
            actors = acts.actor[t, p, envs]
            done = acts.done[t, p, envs]
            reward = acts.reward[t, p, envs]
            onwards.reward[envs] += reward[:, None]
            rest[envs] += reward
            link = onwards.take((envs, actors))
            link.terminate(done, rest[envs[done]])
            links.put((t, envs, actors), link)
            onwards.lead_to_next_act((envs, actors))
    return links


@dataclass
class _ActTable:
    """Acts and final observations by time.

    Attributes:
        actor: [T, P, N] slot that acts at a position in the row, over all step keys; -1: none.
        reward: [T, P, N] reward that the environment returned.
        done: [T, P, N] True if the actor was done with its act.
        final_actor: [T, N] slot whose final observation follows the row; -1: none.
        final_index: [T, N] index of this observation among the finals of its step key; -1: none.
    """

    actor: Array
    reward: Array
    done: Array
    final_actor: Array
    final_index: Array


def _tabulate(rollout: Rollout, offsets: list[int]) -> _ActTable:
    """Tabulate acts and final observations by time."""
    n_rows, n_envs = rollout.rows.filled.shape
    width = 1 + max(int((segment.position * segment.active).max()) for segment in rollout.segments.values())
    by_position = (n_rows, width, n_envs)
    table = _ActTable(
        actor=np.full(by_position, -1),
        reward=np.zeros(by_position),
        done=np.zeros(by_position, bool),
        final_actor=np.full((n_rows, n_envs), -1),
        final_index=np.full((n_rows, n_envs), -1),
    )
    for (key, segment), start in zip(rollout.segments.items(), offsets, strict=False):
        times, columns = np.nonzero(_numpy(segment.active))
        index = times, _numpy(segment.position)[times, columns], columns // rollout.n_slots(key)
        table.actor[index] = start + columns % rollout.n_slots(key)
        table.reward[index] = _numpy(segment.reward)[times, columns]
        table.done[index] = _numpy(segment.actor_done)[times, columns]
        end = rollout.finals[key]
        at = _numpy(end.row), _numpy(end.env)
        slot = _numpy(end.slot)
        table.final_actor[at] = np.where(slot >= 0, start + slot, -1)
        table.final_index[at] = np.arange(len(slot))
    return table


def _in_columns(rollout: Rollout, key: StepKey, links: _Links, start: int, stop: int) -> Streams:
    """Gather the acts of each slot of a step key to the top of its column.

    Args:
        rollout: The rollout.
        key: The step key.
        links: [T, N, A] links of all acts.
        start: First slot of the step key among all A slots.
        stop: Slot after its last.
    """
    active = _numpy(rollout.segments[key].active)
    columns, times = np.nonzero(active.T)  # by column, then by time
    place = np.arange(len(times)) - np.concatenate([[0], np.cumsum(active.sum(0))])[columns]
    shape = (max(1, int(active.sum(0).max(initial=0))), active.shape[1])
    of_acts = links.take((times, columns // (stop - start), start + columns % (stop - start)))

    def gather(values: Any, padding: float) -> Array:
        dense = np.full(shape, padding, values.dtype)
        dense[place, columns] = values
        return dense

    row = gather(times, -1)
    reward = gather(of_acts.reward, 0.0)
    successor = gather(of_acts.successor, _TERMINAL)
    is_open = successor == _OPEN
    followed_by_open = np.concatenate([is_open[1:], np.zeros_like(is_open[:1])])
    attributed = rollout.segments[key].actor_reward
    if attributed is not None:
        reward = np.where(row >= 0, np.take_along_axis(_numpy(attributed), np.maximum(row, 0), 0), 0.0)
    return Streams(
        row=_tensor(row),
        reward=_tensor(reward),
        discount=_tensor(gather(of_acts.discount, 0.0)),
        terminated=_tensor(successor == _TERMINAL),
        cut=_tensor((successor != _NEXT) | followed_by_open),
        final=_tensor(gather(of_acts.final, -1)),
        open=_tensor(is_open),
    )
