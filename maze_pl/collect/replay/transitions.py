"""Conversion of rollouts to transitions: every act with its outcome until its actor acts again.

Rewards and discounts between two acts of an actor are defined as in `maze_pl.core.streams`. A
transition is made as soon as its successor is known, which may be several rollouts later. Until
then the act is *open* and kept with its outcome so far. An open act is dropped if its successor
never comes: because another actor gets the last observation of a truncated episode, or because the
episode is lost with its worker.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from maze_pl.collect.replay.act_pool import OPEN_FIELDS, ActPool
from maze_pl.collect.replay.outcomes import PoolOutcomes, outcomes_of
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns, taken

_FIELDS_OF_AN_ACT = ("observation", "action", "agent_id", "is_first")


class Transitions:
    """Makes transitions from consecutive rollouts of the same environments.

    Args:
        n_envs: Number of environments.
        gamma: Discount of one unit of environment time.
        n_slots: By step key, number of agents that may be alive at once.
    """

    def __init__(self, n_envs: int, gamma: float, n_slots: Mapping[StepKey, int]) -> None:
        self._n_envs = n_envs
        self._gamma = gamma
        self._n_slots = n_slots
        self._open: dict[StepKey, Columns] = {}  # as from `ActPool.open_acts`

    def of(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Return the transitions that a rollout completes.

        They are in the order in which their successors became known; acts of actors that are done have no
        successor, and come in the order in which they were taken. So the transitions of a stream
        are in the order of its acts, also if another actor takes the slot within the same environment step.

        Args:
            rollout: The next rollout.

        Returns:
            By step key, if it has transitions, arrays [n, ...]: `observation`, `action`,
            `agent_id`, `reward`, `discount` and `next_observation` as in `TransitionBatch`;
            `stream`, a number that is the same for all acts of a slot of an environment; and
            `is_first`, whether the act is the actor's first in its episode, so that it does not
            continue the stream's previous transition. Arrays may be views of the rollout.
        """
        return self._of_flat(rollout) if rollout.flat else self._of_acts(rollout)

    def _of_flat(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Convert a flat rollout, in which each row is an act with a known successor."""
        ((key, segment),) = rollout.segments.items()
        final = rollout.finals[key]
        rows = rollout.rows
        terminated = rows.terminated.numpy()  # [T, N]
        before_final = (final.row.numpy(), final.env.numpy())
        reward = rows.reward if segment.actor_reward is None else segment.actor_reward
        columns: Columns = {name: mapped(Tensor.numpy, getattr(segment, name)) for name in _FIELDS_OF_AN_ACT}
        columns["next_observation"] = {}
        for name, observed in columns["observation"].items():  # [T, N, ...]
            following = np.empty_like(observed)
            following[:-1] = observed[1:]
            following[before_final] = final.observation[name].numpy()
            further_dimensions = [1] * (observed.ndim - 2)
            is_end = terminated.reshape(*terminated.shape, *further_dimensions)
            np.copyto(following, observed, where=is_end)
            columns["next_observation"][name] = following
        columns["reward"] = reward.numpy()
        columns["discount"] = np.where(terminated, 0.0, self._gamma ** rows.env_steps.numpy())
        columns["stream"] = np.broadcast_to(np.arange(rollout.n_envs), terminated.shape)
        return {key: mapped(_flattened, columns)}

    def _of_acts(self, rollout: Rollout) -> dict[StepKey, Columns]:
        """Convert a rollout of several actors, or of environments that do not all act in each row."""
        n_slots = {key: rollout.n_slots(key) for key in rollout.segments}
        segments = mapped(Tensor.numpy, rollout.segments)
        finals = mapped(Tensor.numpy, rollout.finals)
        if rollout.starting is not None:
            self._forget(rollout.starting.numpy())
        pools = {}
        for key, n_of_key in n_slots.items():
            pools[key] = ActPool(self._open.get(key), segments[key], finals[key], n_of_key)
        rows = mapped(Tensor.numpy, rollout.rows)
        outcomes = outcomes_of(list(pools.values()), list(n_slots.values()), rows, self._gamma)
        completed = {}
        for (key, pool), of_pool in zip(pools.items(), outcomes, strict=True):
            self._open.pop(key, None)
            if of_pool.open.size:
                self._open[key] = pool.open_acts(of_pool.open, of_pool.entries)
            if of_pool.completed.size:
                completed[key] = self._completed(key, pool, of_pool)
        return completed

    def _completed(self, key: StepKey, pool: ActPool, outcomes: PoolOutcomes) -> Columns:
        """Return the acts of a step key whose successor is known."""
        numbers = outcomes.completed
        entries = outcomes.entries
        return {
            "observation": pool.observations(numbers),
            "action": pool.actions(numbers),
            "agent_id": entries.agent_id[numbers],
            "reward": entries.reward[numbers],
            "discount": entries.discount[numbers],
            "next_observation": pool.observations(outcomes.following),
            "stream": self._streams(key, entries.env[numbers], entries.slot[numbers]),
            "is_first": entries.is_first[numbers],
        }

    def _streams(self, key: StepKey, env: Array, slot: Array) -> Array:
        """Return the numbers of slots [n] of environments [n], which stay the same when slots are added."""
        n_slots = self._n_slots[key]
        return np.where(slot < n_slots, env * n_slots + slot, slot * self._n_envs + env)

    def _forget(self, starting: Array) -> None:
        """Drop open acts that belong to episodes that were lost."""
        if starting.any():
            for key, opened in self._open.items():
                self._open[key] = taken(opened, ~starting[opened["env"]])

    def state_dict(self) -> dict[StepKey, Any]:
        """Return the open acts of each step key: tensors only."""
        return dict(to_tensors(self._open))

    def load_state_dict(self, state: Any) -> None:
        """Continue from the result of `state_dict`; see `opened`."""
        self._open = self.opened(state)

    def opened(self, state: Any) -> dict[StepKey, Columns]:
        """Return the open acts of a state, or of the lists of acts that earlier versions saved.

        Raises:
            KeyError: A part is missing.
            ValueError: They cannot be acts of these environments.
        """
        try:
            opened = self._of_lists(state) if isinstance(state, list) else self._of_columns(state)
            for key, acts in opened.items():
                self._check(key, acts)
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(f"its open acts cannot be read: {error!r}") from error
        return opened

    def _of_columns(self, state: Any) -> dict[StepKey, Columns]:
        """Return the fields of open acts in a state, without others."""
        opened = {}
        for key, tensors in state.items():
            columns = from_tensors(tensors)
            opened[key] = {name: columns[name] for name in ("observation", "action", *OPEN_FIELDS)}
        return opened

    def _check(self, key: StepKey, acts: Columns) -> None:
        """Raise ValueError if open acts of a state cannot be acts of these environments, one of an actor."""
        n = len(acts["env"])
        is_fitting = key in self._n_slots
        for name, dtype in OPEN_FIELDS.items():
            values = acts[name]
            is_fitting &= values.shape == (n,) and np.can_cast(values.dtype, dtype, "same_kind")
        if not is_fitting:
            raise ValueError(f"its open acts of {key!r} have fields of other types or lengths")
        env, slot = acts["env"], acts["slot"]
        actors = np.unique(np.stack([env, slot]), axis=1)
        is_known = actors.shape[1] == n and bool(((env >= 0) & (env < self._n_envs) & (slot >= 0)).all())
        if not is_known:
            raise ValueError(f"its open acts of {key!r} are not those of actors of {self._n_envs} environments")

    def _of_lists(self, state: list[Any]) -> dict[StepKey, Columns]:
        """Convert the state of an earlier version, which has a list of open acts for each environment."""
        found: defaultdict[StepKey, list[Columns]] = defaultdict(list)
        for env, acts in enumerate(state):
            for key, _, tensors in acts:
                act = from_tensors(tensors)
                stream = act.pop("stream")
                n_slots = self._n_slots[key]
                slot = stream % n_slots if stream < n_slots * self._n_envs else stream // self._n_envs
                found[key].append({**act, "env": env, "slot": slot})
        return {key: mapped(_stacked, *acts) for key, acts in found.items()}


def _flattened(array: Array) -> Array:
    """[T, N, ...] -> [T * N, ...]."""
    return array.reshape(len(array) * array.shape[1], *array.shape[2:])  # -1 would not work for empty observations


def _stacked(*arrays: Array) -> Array:
    """[...] each -> [n, ...]."""
    return np.stack(arrays)
