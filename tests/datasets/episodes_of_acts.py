"""Recorded episodes that are made up: the observation of each act says which one it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.records.record_files import SpacesTrajectoryRecord


class Act(NamedTuple):
    key: str
    agent: int
    time: int
    reward: float = 0.0
    done: bool = False


def make_spec(*n_agents: int, size: float = 1e6) -> Spec:
    """Sub-steps "a", "b", ... with so many agents; `size` bounds what is seen."""
    seen = spaces.Dict({"seen": spaces.Box(0, size, (2,), np.float32)})
    choice = spaces.Dict({"choice": spaces.Discrete(1000)})
    return Spec({"abcd"[i]: StepSpec(seen, choice, n_agents=n, n_slots=n) for i, n in enumerate(n_agents)})


def episode(
    acts: Sequence[Act],
    spec: Spec,
    *,
    number: int = 0,
    terminated: bool = True,
    last_time: int | None = None,
    last_actor: ActorID | None = None,
    attributed: bool = False,
) -> SpacesTrajectoryRecord:
    """An episode in which act i sees (number, i) and chooses i, so that what follows the last one is (number, L)."""

    def of(key: Any, make: Any) -> Any:
        return [make(place) for place, act in enumerate(acts) if act.key == key]

    keys = spec.step_keys
    return SpacesTrajectoryRecord(
        f"episode {number}",
        spec,
        key_index=np.array([keys.index(act.key) for act in acts], np.int64),
        agent_id=np.array([act.agent for act in acts], np.int64),
        env_time=np.array([act.time for act in acts], np.int64),
        reward=np.array([act.reward for act in acts], np.float64),
        actor_done=np.array([act.done for act in acts], np.bool_),
        observation={
            key: {"seen": np.array(of(key, lambda place: (number, place)), np.float32).reshape(-1, 2)} for key in keys
        },
        action={key: {"choice": np.array(of(key, lambda place: place), np.int64)} for key in keys},
        terminated=terminated,
        truncated=not terminated,
        last_env_time=acts[-1].time + 1 if last_time is None else last_time,
        last_actor=last_actor,
        last_observation={} if last_actor is None else {"seen": np.array([number, len(acts)], np.float32)},
        actor_reward=np.array([10.0 * act.reward for act in acts]) if attributed else None,
    )


def flat(length: int, number: int = 0, spec: Spec | None = None, *, terminated: bool = True) -> SpacesTrajectoryRecord:
    """An episode of one actor, whose rewards are 1, 2, 3, ..."""
    acts = [Act("a", 0, time, time + 1.0) for time in range(length)]
    last_actor = None if terminated else ActorID("a", 0)
    return episode(acts, spec or make_spec(1), number=number, terminated=terminated, last_actor=last_actor)
