"""Transitions computed act by act: a slow reference for `Transitions`, with the same order and the same numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from maze_pl.collect.state_tensors import to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.spaces import mapped
from maze_pl.records.columns import Columns, taken

FIELDS = ("observation", "action", "agent_id", "is_first")


class Actor(NamedTuple):
    """The actor of an open act; another actor may have its id after the row in which it was done."""

    step_key: StepKey
    agent_id: int
    done_in_row: int = -1


class TransitionsActByAct:
    """Keeps the open acts of each environment in a dict, in the order in which they were taken."""

    def __init__(self, n_envs: int, gamma: float, n_slots: Mapping[StepKey, int]) -> None:
        self.gamma = gamma
        self.n_slots = n_slots
        self.open: list[dict[Actor, Columns]] = [{} for _ in range(n_envs)]

    def of(self, rollout: Rollout) -> dict[StepKey, Columns]:
        rows = mapped(Tensor.numpy, rollout.rows)
        segments = mapped(Tensor.numpy, rollout.segments)
        acts = acts_by_row(rollout, segments)
        finals = final_observations(rollout)
        completed: defaultdict[StepKey, list[Columns]] = defaultdict(list)
        if rollout.starting is not None:
            for env in np.flatnonzero(rollout.starting.numpy()).tolist():
                self.open[env].clear()
        for t, env in np.argwhere(rows.filled).tolist():
            open_acts = self.open[env]
            for _, key, column in sorted(acts[t, env], key=lambda act: act[0]):
                stream = self.stream(key, env, column % rollout.n_slots(key))
                begin(open_acts, key, segments[key], (t, column), stream, completed)
            env_steps = rows.env_steps[t, env]
            for act in open_acts.values():
                act["discount"] *= float(self.gamma**env_steps)
            terminated, truncated = rows.terminated[t, env], rows.truncated[t, env]
            if env_steps or terminated or truncated:
                for actor in list(open_acts):
                    if actor.done_in_row >= 0:  # is among the completed ones already
                        end(open_acts.pop(actor))
                    elif terminated:
                        completed[actor.step_key].append(end(open_acts.pop(actor)))
            if (t, env) in finals:
                actor, observation = finals[t, env]
                if actor in open_acts:
                    act = open_acts.pop(actor)
                    completed[actor.step_key].append(act | {"next_observation": observation})
            if truncated:
                open_acts.clear()
        return {key: mapped(lambda *values: np.stack(values), *found) for key, found in completed.items()}

    def stream(self, key: StepKey, env: int, slot: int) -> int:
        n_slots = self.n_slots[key]
        return env * n_slots + slot if slot < n_slots else slot * len(self.open) + env


def acts_by_row(rollout: Rollout, segments: Mapping[StepKey, Any]) -> defaultdict[tuple[int, int], list[Any]]:
    """By row and environment, position, step key and column of each act."""
    acts: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
    for key, segment in segments.items():
        for t, column in np.argwhere(segment.active).tolist():
            acts[t, column // rollout.n_slots(key)].append((int(segment.position[t, column]), key, column))
    return acts


def final_observations(rollout: Rollout) -> dict[tuple[int, int], tuple[Actor, Columns]]:
    """By row and environment, the observation after the row and the actor that gets it."""
    found = {}
    for key, tensors in rollout.finals.items():
        final = mapped(Tensor.numpy, tensors)
        for n, place in enumerate(zip(final.row.tolist(), final.env.tolist(), strict=True)):
            found[place] = (Actor(key, int(final.agent_id[n])), taken(final.observation, n))
    return found


def begin(
    open_acts: dict[Actor, Columns],
    key: StepKey,
    segment: Any,
    index: tuple[int, int],
    stream: int,
    completed: defaultdict[StepKey, list[Columns]],
) -> None:
    """Open an act, complete the previous one of its actor, and add its reward to all open acts."""
    act: Columns = {name: mapped(lambda array: np.array(array[index]), getattr(segment, name)) for name in FIELDS}
    act["reward"] = 0.0 if segment.actor_reward is None else float(segment.actor_reward[index])
    act |= {"discount": 1.0, "stream": stream}
    actor = Actor(key, int(act["agent_id"]))
    previous = open_acts.pop(actor, None)
    if previous is not None and not act["is_first"]:
        completed[key].append(previous | {"next_observation": act["observation"]})
    if segment.actor_done[index]:
        completed[key].append(act)  # its outcome changes until the environment step ends
        actor = actor._replace(done_in_row=index[0])
    open_acts[actor] = act
    if segment.actor_reward is None:
        for waiting in open_acts.values():
            waiting["reward"] += waiting["discount"] * float(segment.reward[index])


def end(act: Columns) -> Columns:
    """Complete an act after which nothing follows, in place."""
    act.update(next_observation=act["observation"], discount=0.0)
    return act


def state_of_earlier_versions(transitions: TransitionsActByAct) -> list[Any]:
    """The open acts as earlier versions saved them: for each environment, step key, agent and fields of each act."""
    state: list[Any] = []
    for acts in transitions.open:
        state.append([[actor.step_key, actor.agent_id, to_tensors(act)] for actor, act in acts.items()])
    return state
