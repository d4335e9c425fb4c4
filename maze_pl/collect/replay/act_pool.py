"""Acts of one step key as numbered entries: open ones of earlier rollouts, acts of a rollout, final observations."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns

OPEN_FIELDS: Final = {
    "env": np.dtype(np.int64),
    "slot": np.dtype(np.int64),
    "agent_id": np.dtype(np.int64),
    "is_first": np.dtype(np.bool_),
    "reward": np.dtype(np.float64),
    "discount": np.dtype(np.float64),
}
"""Fields of open acts, as in `Entries`, besides their observations and actions."""
_OUTCOME_FIELDS: Final = ("is_first", "reward", "discount")
"""Fields of open acts that other acts get from the rollout."""


@dataclass
class Entries:
    """Acts and final observations, as arrays [M].

    Attributes:
        env: Environment.
        slot: Slot of the actor; -1 if the agent of a final observation has none.
        agent_id: Id of the actor.
        row: Row of the act, or before the final observation; -1 for acts of earlier rollouts.
        position: Position of the act in its row; 0 for other entries.
        is_first: True if the act is the actor's first in its episode.
        is_done: True if the actor was done with the act.
        team_reward: Reward that `env.step` returned for the act; 0 if rewards are attributed to acts.
        reward: Sum of the discounted rewards of the act so far.
        discount: Product of the discounts since the act.
    """

    env: Array
    slot: Array
    agent_id: Array
    row: Array
    position: Array
    is_first: Array
    is_done: Array
    team_reward: Array
    reward: Array
    discount: Array


class ActPool:
    """Open acts of earlier rollouts, the acts of a rollout and its final observations, for one step key.

    Entries are numbered in this order. The acts of each environment are in the order in which they were taken.

    Args:
        opened: Open acts as from `open_acts`; None if there are none.
        segment: Segment of the rollout, of arrays.
        final: Final observations of the rollout, of arrays.
        n_slots: Slots of each environment.

    Attributes:
        entries: The entries.
        acts: Numbers of the acts of the rollout.
        finals: Numbers of the final observations.
    """

    def __init__(self, opened: Columns | None, segment: Any, final: Any, n_slots: int) -> None:
        if opened is None:
            opened = {name: np.zeros(0, dtype) for name, dtype in OPEN_FIELDS.items()}
        self._opened: Columns = opened
        self._segment = segment
        self._final = final
        row, column = np.nonzero(segment.active)
        if n_slots > 1:  # slots of an environment act in any order
            order = np.lexsort((segment.position[row, column], row))
            row, column = row[order], column[order]
        self._flat_index = row * segment.active.shape[1] + column  # of the acts in [T * B, ...]
        n_open = len(self._opened["env"])
        self.acts = slice(n_open, n_open + len(row))
        self.finals = slice(self.acts.stop, self.acts.stop + len(final.row))
        self.entries = self._entries(row, column, n_slots)

    def _entries(self, row: Array, column: Array, n_slots: int) -> Entries:
        """Return all entries; the acts of the rollout have rows [A] and columns [A]."""
        opened = self._opened
        segment = self._segment
        final = self._final
        acts = self.acts
        index = (row, column)
        env, slot = np.divmod(column, n_slots)
        entries = Entries(
            env=np.concatenate([opened["env"], env, final.env]),
            slot=np.concatenate([opened["slot"], slot, final.slot]),
            agent_id=np.concatenate([opened["agent_id"], segment.agent_id[index], final.agent_id]),
            row=np.full(self.finals.stop, -1),
            position=np.zeros(self.finals.stop, np.int64),
            is_first=np.zeros(self.finals.stop, np.bool_),
            is_done=np.zeros(self.finals.stop, np.bool_),
            team_reward=np.zeros(self.finals.stop),
            reward=np.zeros(self.finals.stop),
            discount=np.ones(self.finals.stop),
        )
        for name in _OUTCOME_FIELDS:
            getattr(entries, name)[: acts.start] = opened[name]
        entries.row[acts] = row
        entries.row[self.finals] = final.row
        entries.position[acts] = segment.position[index]
        entries.is_first[acts] = segment.is_first[index]
        entries.is_done[acts] = segment.actor_done[index]
        if segment.actor_reward is None:
            entries.team_reward[acts] = segment.reward[index]
        else:
            entries.reward[acts] = segment.actor_reward[index]
        return entries

    def observations(self, numbers: Array) -> Any:
        """Return observations [n, ...] of entries [n]."""
        return self._gathered("observation", numbers)

    def actions(self, numbers: Array) -> Any:
        """Return actions [n, ...] of acts [n]."""
        return self._gathered("action", numbers)

    def _gathered(self, name: str, numbers: Array) -> Any:
        """Gather entries [n] of a tree of arrays."""
        is_open = numbers < self.acts.start
        is_final = numbers >= self.finals.start
        is_acted = ~(is_open | is_final)
        of_acts = self._flat_index[numbers[is_acted] - self.acts.start]
        trees = [getattr(self._segment, name)]
        others = []
        if is_open.any():
            trees.append(self._opened[name])
            others.append((is_open, numbers[is_open]))
        if is_final.any():
            trees.append(getattr(self._final, name))
            others.append((is_final, numbers[is_final] - self.finals.start))

        def gather(acted: Array, *further: Array) -> Array:
            """Gather the entries of arrays [T, B, ...], [n_open, ...] and [F, ...]."""
            shape = acted.shape[2:]
            found: Array = acted.reshape(acted.shape[0] * acted.shape[1], *shape)[of_acts]
            if not further:
                return found
            result = np.empty((len(numbers), *shape), acted.dtype)
            result[is_acted] = found
            for array, (chosen, index) in zip(further, others, strict=True):
                result[chosen] = array[index]
            return result

        return mapped(gather, *trees)

    def open_acts(self, numbers: Array, entries: Entries) -> Columns:
        """Return acts that have no successor yet, for the pool of the next rollout.

        Args:
            numbers: [n] the acts, ascending.
            entries: All entries, with the outcomes so far.
        """
        columns: Columns = {"observation": self.observations(numbers), "action": self.actions(numbers)}
        for name in OPEN_FIELDS:
            columns[name] = getattr(entries, name)[numbers]
        return columns
