"""Conversion of rollouts to transitions: every act with its outcome until its actor acts again.

Rewards and discounts between two acts of an actor are defined as in `maze_pl.core.streams`. A
transition is made as soon as its successor is known, which may be several rollouts later. Until
then the act is *open* and kept with its outcome so far. An open act is dropped if its successor
never comes: because another actor gets the last observation of a truncated episode, or because the
episode is lost with its worker.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns, taken

Array = np.ndarray[Any, np.dtype[Any]]
_FIELDS_OF_AN_ACT = ("observation", "action", "agent_id", "is_first")


class _Actor(NamedTuple):
    """The actor of an open act.

    Attributes:
        step_key: Its sub-step.
        agent_id: Its id.
        done_in_row: Row in which it was done, until the environment step ends; -1 if it is not
            done. Another actor may have its id from then on.
    """

    step_key: StepKey
    agent_id: int
    done_in_row: int = -1


class _Successor(NamedTuple):
    """The observation after a row, and the actor that gets it."""

    actor: _Actor
    observation: Columns


class Transitions:
    """Makes transitions from consecutive rollouts of the same environments.

    Args:
        n_envs: Number of environments.
        gamma: Discount of one unit of environment time.
        n_slots: By step key, number of agents that may be alive at once.
    """

    def __init__(self, n_envs: int, gamma: float, n_slots: Mapping[StepKey, int]) -> None:
        self._gamma = gamma
        self._n_slots = n_slots
        self._open: list[dict[_Actor, Columns]] = [{} for _ in range(n_envs)]

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
        """Convert a rollout act by act."""
        rows = mapped(Tensor.numpy, rollout.rows)
        segments = mapped(Tensor.numpy, rollout.segments)
        acts = _acts_by_row(rollout, segments)
        successors = _successors(rollout)
        completed: defaultdict[StepKey, list[Columns]] = defaultdict(list)
        if rollout.starting is not None:
            for env in np.flatnonzero(rollout.starting.numpy()).tolist():
                self._open[env].clear()  # open acts belong to an episode that was lost
        for t, env in np.argwhere(rows.filled).tolist():
            open_acts = self._open[env]
            for _, key, column in sorted(acts[t, env]):
                slot = column % rollout.n_slots(key)
                stream = self._stream(key, env, slot)
                _begin(open_acts, key, segments[key], (t, column), stream, completed)
            env_steps = rows.env_steps[t, env]
            for act in open_acts.values():
                act["discount"] *= float(self._gamma**env_steps)
            terminated = rows.terminated[t, env]
            truncated = rows.truncated[t, env]
            if env_steps or terminated or truncated:
                for actor in list(open_acts):
                    if actor.done_in_row >= 0:  # has its place among the completed ones already
                        _end(open_acts.pop(actor))
                    elif terminated:
                        completed[actor.step_key].append(_end(open_acts.pop(actor)))
            successor = successors.get((t, env))
            if successor is not None and successor.actor in open_acts:
                act = open_acts.pop(successor.actor)
                completed[successor.actor.step_key].append(act | {"next_observation": successor.observation})
            if truncated:
                open_acts.clear()
        return {key: mapped(_stacked, *found) for key, found in completed.items()}

    def _stream(self, key: StepKey, env: int, slot: int) -> int:
        """Number of a slot of an environment, which stays the same when slots are added."""
        n_slots = self._n_slots[key]
        if slot < n_slots:
            return env * n_slots + slot
        n_envs = len(self._open)
        return slot * n_envs + env

    def state_dict(self) -> list[Any]:
        """Return the open acts: tensors and primitives only."""
        return [_state_of(open_acts) for open_acts in self._open]

    def load_state_dict(self, state: list[Any]) -> None:
        """Continue from the result of `state_dict`."""
        self._open = [_open_acts_of(entries) for entries in state]


def _acts_by_row(
    rollout: Rollout, segments: Mapping[StepKey, Any]
) -> defaultdict[tuple[int, int], list[tuple[int, StepKey, int]]]:
    """List, by row and environment, the position, step key and column of each act."""
    acts: defaultdict[tuple[int, int], list[tuple[int, StepKey, int]]] = defaultdict(list)
    for key, segment in segments.items():
        n_slots = rollout.n_slots(key)
        for t, column in np.argwhere(segment.active).tolist():
            position = int(segment.position[t, column])
            acts[t, column // n_slots].append((position, key, column))
    return acts


def _successors(rollout: Rollout) -> dict[tuple[int, int], _Successor]:
    """Return, by row and environment, the final observation after the row."""
    successors = {}
    for key, tensors in rollout.finals.items():
        final = mapped(Tensor.numpy, tensors)
        places = zip(final.row.tolist(), final.env.tolist(), strict=True)
        for n, (t, env) in enumerate(places):
            actor = _Actor(key, int(final.agent_id[n]))
            successors[t, env] = _Successor(actor, taken(final.observation, n))
    return successors


def _begin(
    open_acts: dict[_Actor, Columns],
    key: StepKey,
    segment: Any,
    index: tuple[int, int],
    stream: int,
    completed: defaultdict[StepKey, list[Columns]],
) -> None:
    """Open an act; complete its actor's previous act, and add its reward to the other open acts.

    Args:
        open_acts: Open acts of the environment.
        key: Step key of the act.
        segment: Its segment, as arrays.
        index: Its row and column in the segment.
        stream: Number of its stream.
        completed: By step key, gets the previous act of the actor, and the act itself if the actor is
            done; its outcome changes until the environment step ends.
    """
    act = _act(segment, index)
    act["stream"] = stream
    actor = _Actor(key, int(act["agent_id"]))
    previous = open_acts.pop(actor, None)
    if previous is not None and not act["is_first"]:
        completed[key].append(previous | {"next_observation": act["observation"]})
    # the act goes last; rewards until the end of the environment step count for a done actor too
    if segment.actor_done[index]:
        completed[key].append(act)  # ahead of the acts of the next actor in its slot
        actor = actor._replace(done_in_row=index[0])
    open_acts[actor] = act
    if segment.actor_reward is None:
        for waiting in open_acts.values():
            waiting["reward"] += waiting["discount"] * float(segment.reward[index])


def _act(segment: Any, index: tuple[int, int]) -> Columns:
    """Copy an act as a transition without an outcome after it."""
    act: Columns = {
        name: mapped(lambda array: np.array(array[index]), getattr(segment, name)) for name in _FIELDS_OF_AN_ACT
    }
    act["reward"] = 0.0 if segment.actor_reward is None else float(segment.actor_reward[index])
    act["discount"] = 1.0
    return act


def _end(act: Columns) -> Columns:
    """Complete an act after which nothing follows, in place."""
    act["next_observation"] = act["observation"]
    act["discount"] = 0.0
    return act


def _flattened(array: Array) -> Array:
    """[T, N, ...] -> [T * N, ...]."""
    return array.reshape(len(array) * array.shape[1], *array.shape[2:])  # -1 would not work for empty observations


def _stacked(*arrays: Array) -> Array:
    """[...] each -> [n, ...]."""
    return np.stack(arrays)


def _state_of(open_acts: Mapping[_Actor, Columns]) -> list[Any]:
    """Describe open acts between two rollouts, when no actor is done, by lists and tensors."""
    return [[actor.step_key, actor.agent_id, to_tensors(act)] for actor, act in open_acts.items()]


def _open_acts_of(entries: list[Any]) -> dict[_Actor, Columns]:
    """Restore open acts from the result of `_state_of`."""
    open_acts = {}
    for step_key, _, tensors in entries:
        act = from_tensors(tensors)
        open_acts[_Actor(step_key, int(act["agent_id"]))] = act
    return open_acts
