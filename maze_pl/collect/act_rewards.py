"""Storing of rewards that environments attribute to single acts."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.progress import ActPlaces
from maze_pl.collect.storage import RolloutStorage
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl.envs.vector.vector_env import AttributedRewards

_SOURCE: Final = "(from get_actor_rewards, or from actor_rewards of an ArrayStep)"


class ActRewards:
    """Writes rewards of single acts into the storage of rollouts, once their environment steps have ended.

    Args:
        storage: Storage of the rollouts.
        slots: Slots of the actors.
        step_keys: All step keys, in their order.

    Attributes:
        is_attributed: Whether the environments attribute rewards; None before the first environment step has ended.
    """

    def __init__(self, storage: RolloutStorage, slots: ActorSlots, step_keys: Sequence[StepKey]) -> None:
        self.is_attributed: bool | None = None
        self._storage = storage
        self._slots = slots
        self._step_keys = step_keys

    def write(self, attributed: AttributedRewards | None, finished: Array, places: ActPlaces) -> None:
        """Store the rewards of the acts of environment steps that have ended; forget the acts.

        Args:
            attributed: The rewards, if the environments attribute any.
            finished: [F] environments that have completed an environment step, ascending.
            places: For each environment, the acts of its current environment step.

        Raises:
            ValueError: There is not one reward for each act, or some environment steps have rewards of acts, and
                others do not.
        """
        if not finished.size:
            return
        self._require_all_or_none(attributed, finished)
        if self.is_attributed:
            self._storage.attribute()
        n_acts = places.n_acts[finished]
        places.n_acts[finished] = 0  # forgets the acts
        if attributed is None:
            return
        _require_one_for_each_act(attributed, finished, n_acts)
        n_columns = int(n_acts.max())
        is_act = np.arange(n_columns) < n_acts[:, np.newaxis]  # [F, L]
        keys = places.key[finished, :n_columns]
        for key, step_key in enumerate(self._step_keys):
            at, column = np.nonzero(is_act & (keys == key))
            envs = finished[at]
            columns = envs * int(self._slots.n_slots[key]) + places.slot[envs, column]
            segment = self._storage.segments[step_key]
            assert segment.actor_reward is not None
            segment.actor_reward[places.row[envs, column], columns] = attributed.rewards[at, column]

    def _require_all_or_none(self, attributed: AttributedRewards | None, finished: Array) -> None:
        """Refuse environments that attribute rewards in some environment steps only.

        Args:
            attributed: As for `write`.
            finished: As for `write`.
        """
        if self.is_attributed is None:
            self.is_attributed = attributed is not None and int(attributed.envs[0]) == int(finished[0])
        with_rewards = finished[:0] if attributed is None else attributed.envs
        expected = finished if self.is_attributed else finished[:0]
        if np.array_equal(with_rewards, expected):
            return
        odd = np.setdiff1d(finished, with_rewards) if self.is_attributed else np.intersect1d(finished, with_rewards)
        if odd.size:
            has, had = ("no", "some") if self.is_attributed else ("some", "none")
            came = f"environment {odd[0]} has {has} rewards of acts {_SOURCE} in a step, after {had} before"
            raise ValueError(f"{came}; attribute rewards in every environment step or in none")


def _require_one_for_each_act(attributed: AttributedRewards, finished: Array, n_acts: Array) -> None:
    """Refuse a number of attributed rewards other than that of the acts of a step.

    Args:
        attributed: Rewards of F environment steps.
        finished: [F] their environments.
        n_acts: [F] their numbers of acts.
    """
    counts = n_acts if attributed.n_acts is None else attributed.n_acts
    is_wrong = (counts != n_acts) | (n_acts > attributed.rewards.shape[1])
    if is_wrong.any():
        place = int(np.flatnonzero(is_wrong)[0])
        shape = (int(counts[place]) if attributed.n_acts is not None else attributed.rewards.shape[1],)
        returned = f"rewards of shape {shape} for {n_acts[place]} acts {_SOURCE}"
        came = f"environment {finished[place]} has {returned}"
        remedy = "return one reward for each act of the environment step, in order, and advance environment time"
        at_ends = "if an act ends the episode within a step, the rewards are those of its acts so far"
        raise ValueError(f"{came}; {remedy} after the last one; {at_ends}")
