"""Outcomes of acts: rewards and discounts until their actors act again, and the observations that follow."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from maze_pl.collect.replay.act_pool import ActPool, Entries
from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped


class PoolOutcomes(NamedTuple):
    """Outcomes of the acts of one pool.

    Attributes:
        entries: Entries of the pool; rewards and discounts are those until the successor, as far as it is known.
        completed: [n] numbers of the acts whose successor is known, in the order in which it became known.
        following: [n] number of the entry whose observation follows each of them: its own if its actor does not
            act again.
        open: [m] numbers of the acts that are still open, ascending.
    """

    entries: Entries
    completed: Array
    following: Array
    open: Array


def outcomes_of(pools: Sequence[ActPool], n_slots: Sequence[int], rows: Any, gamma: float) -> list[PoolOutcomes]:
    """Return the outcomes of the acts of each pool.

    Args:
        pools: Acts and final observations of each step key.
        n_slots: Slots of each step key, in each environment.
        rows: Rows of the rollout, of arrays.
        gamma: Discount of one unit of environment time.
    """
    played = _PlayedRows(pools, n_slots, rows, gamma)
    for row in range(len(rows.filled)):
        played.play(row)
    played.note_open_acts()
    return [played.outcomes(start, stop) for start, stop in pairwise(played.starts)]


class _PlayedRows:
    """Acts of all pools, followed row by row for all environments at once.

    Entries of all pools are numbered one pool after the other. An act is open until its successor
    is known. An actor has at most one open act, and leaves its slot when it is done. The arguments
    are those of `outcomes_of`.

    Attributes:
        starts: Number of the first entry of each pool, and of all entries.
    """

    def __init__(self, pools: Sequence[ActPool], n_slots: Sequence[int], rows: Any, gamma: float) -> None:
        self.starts: list[int] = np.cumsum([0, *(pool.finals.stop for pool in pools)]).tolist()
        n_all = self.starts[-1]
        self._entries: Entries = mapped(lambda *parts: np.concatenate(parts), *(pool.entries for pool in pools))
        self._following = np.arange(n_all)
        # [entries] numbers that grow with the row, the environment and the stage in which the successor of an act
        # became known; -1 while it is unknown
        self._place = np.full(n_all, -1)
        self._rows = rows
        self._n_envs = rows.filled.shape[1]
        offsets = np.cumsum([0, *n_slots])
        n_entries = np.diff(self.starts)
        # [M] slots over all step keys
        self._actor = np.where(self._entries.slot < 0, -1, self._entries.slot + np.repeat(offsets[:-1], n_entries))
        shape = (self._n_envs, int(offsets[-1]))
        self._open = np.full(shape, -1)  # number of the open act of each slot
        self._reward = np.zeros(shape)
        self._discount = np.ones(shape)
        self._done = np.zeros(0, np.int64)  # acts of actors that are done, until the environment step ends
        self._tabulate(pools)
        self._discounts = _discounts_of(rows.env_steps, gamma)

    def _tabulate(self, pools: Sequence[ActPool]) -> None:
        """Tabulate acts and final observations by time, and take over the open acts of earlier rollouts."""
        entries = self._entries
        n_rows = len(self._rows.filled)
        width = int(entries.position.max(initial=0)) + 1
        # stages of a row: 2 p for the acts at position p, 2 p + 1 for the ends of their actors, then these
        self._stage_of_ends = 2 * width  # of episodes that are terminated
        self._stage_of_finals = 2 * width + 1
        self._n_stages = 2 * width + 2
        # [T, P, N] numbers of the acts at each position of each row, and [T, N] of the final observations after rows
        self._acts = np.full((n_rows, width, self._n_envs), -1)
        self._finals = np.full((n_rows, self._n_envs), -1)
        for pool, start in zip(pools, self.starts, strict=False):
            acts = np.arange(start + pool.acts.start, start + pool.acts.stop)
            self._acts[entries.row[acts], entries.position[acts], entries.env[acts]] = acts
            finals = np.arange(start + pool.finals.start, start + pool.finals.stop)
            self._finals[entries.row[finals], entries.env[finals]] = finals
            earlier = np.arange(start, start + pool.acts.start)
            index = (entries.env[earlier], self._actor[earlier])
            self._open[index] = earlier
            self._reward[index] = entries.reward[earlier]
            self._discount[index] = entries.discount[earlier]

    def play(self, row: int) -> None:
        """Follow the acts of a row in their order."""
        for position, of_envs in enumerate(self._acts[row]):
            numbers = of_envs[of_envs >= 0]
            if not numbers.size:
                break
            self._act(numbers, row, 2 * position)
        self._end_row(row)

    def _act(self, numbers: Array, row: int, stage: int) -> None:
        """Follow acts [n] at the same position of a row, in n environments."""
        entries = self._entries
        envs = entries.env[numbers]
        actors = self._actor[numbers]
        previous = self._open[envs, actors]
        continues = (previous >= 0) & ~entries.is_first[numbers]
        self._complete(previous[continues], numbers[continues], row, stage)
        self._open[envs, actors] = numbers
        self._reward[envs, actors] = entries.reward[numbers]
        self._discount[envs, actors] = 1.0
        team_reward = entries.team_reward[numbers]
        self._reward[envs] += self._discount[envs] * team_reward[:, np.newaxis]
        if self._done.size:
            of_envs = np.zeros(self._n_envs)
            of_envs[envs] = team_reward
            entries.reward[self._done] += of_envs[entries.env[self._done]]
        is_done = entries.is_done[numbers]
        if is_done.any():
            done = numbers[is_done]
            # ahead of the acts of the next actors in these slots; rewards until the end of the step still count
            self._end(done, row, stage + 1)
            self._open[envs[is_done], actors[is_done]] = -1
            self._done = np.concatenate([self._done, done])

    def _end_row(self, row: int) -> None:
        """Let time pass after the acts of a row, and end episodes."""
        terminated = self._rows.terminated[row]
        truncated = self._rows.truncated[row]
        self._discount *= self._discounts[row, :, np.newaxis]
        if self._done.size:
            continues = (self._rows.env_steps[row] == 0) & ~(terminated | truncated)
            self._done = self._done[continues[self._entries.env[self._done]]]
        if terminated.any():
            ended = self._open[terminated]
            self._end(ended[ended >= 0], row, self._stage_of_ends)
            self._open[terminated] = -1
        finals = self._finals[row]
        finals = finals[finals >= 0]
        finals = finals[self._actor[finals] >= 0]
        if finals.size:
            index = (self._entries.env[finals], self._actor[finals])
            numbers = self._open[index]
            is_open = numbers >= 0
            self._complete(numbers[is_open], finals[is_open], row, self._stage_of_finals)
            self._open[index] = -1
        if truncated.any():
            self._open[truncated] = -1

    def note_open_acts(self) -> None:
        """Note the outcomes so far of the acts that are open after the last row."""
        index = np.nonzero(self._open >= 0)
        numbers = self._open[index]
        self._entries.reward[numbers] = self._reward[index]
        self._entries.discount[numbers] = self._discount[index]

    def outcomes(self, start: int, stop: int) -> PoolOutcomes:
        """Return the outcomes of the pool with these entries."""
        part = slice(start, stop)
        place = self._place[part]
        completed = np.flatnonzero(place >= 0)
        completed = completed[place[completed].argsort(kind="stable")]
        following = self._following[start + completed] - start
        still_open = np.sort(self._open[(self._open >= start) & (self._open < stop)]) - start
        entries: Entries = mapped(lambda array: array[part], self._entries)
        return PoolOutcomes(entries, completed, following, still_open)

    def _complete(self, numbers: Array, following: Array, row: int, stage: int) -> None:
        """Complete acts [n], which are open.

        Args:
            numbers: The acts.
            following: [n] numbers of the entries that follow.
            row: Row in which that became known.
            stage: Stage of the row, see `_tabulate`.
        """
        entries = self._entries
        envs = entries.env[numbers]
        index = (envs, self._actor[numbers])
        entries.reward[numbers] = self._reward[index]
        entries.discount[numbers] = self._discount[index]
        self._following[numbers] = following
        self._place[numbers] = (row * self._n_envs + envs) * self._n_stages + stage

    def _end(self, numbers: Array, row: int, stage: int) -> None:
        """Complete acts [n], after which nothing follows."""
        self._complete(numbers, numbers, row, stage)
        self._entries.discount[numbers] = 0.0


def _discounts_of(env_steps: Array, gamma: float) -> Array:
    """Return the discounts [T, N] of rows that take environment time [T, N].

    Powers of arrays may differ in the last bit from powers of single numbers, which do not depend on their places.
    """
    durations, index = np.unique(env_steps, return_inverse=True)
    powers = np.array([gamma**duration for duration in durations])
    return powers[index].reshape(env_steps.shape)
