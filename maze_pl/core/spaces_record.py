"""Episodes in the terms of agents: what they saw and did, as arrays, from which others can learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spec import Spec

Array = np.ndarray[Any, np.dtype[Any]]
Tree = dict[str, Array]


@dataclass(slots=True)
class SpacesTrajectoryRecord:
    """An episode, or the part of it that was played: L acts, of which L_k are of sub-step k.

    Attributes:
        episode_id: UUID of the episode.
        spec: What agents see and do.
        key_index: [L] int64, position among the step keys of each act.
        agent_id: [L] int64, who acted.
        env_time: [L] int64, environment steps completed before the act.
        reward: [L] float64, what `env.step` returned.
        actor_done: [L] bool, the actor was done with this act.
        observation: Step key -> name -> [L_k, ...], what was seen before the acts.
        action: Step key -> head -> [L_k, ...], what was done.
        terminated: Whether the last act ended the episode.
        truncated: Whether the episode was cut off after it, also because nobody went on with it.
        last_env_time: Environment steps completed in the end.
        last_actor: Who would have acted next; None where the episode was terminated.
        last_observation: What that actor would have seen; empty where the episode was terminated.
        actor_reward: [L] float64, rewards attributed to the acts, where the environment attributes them.
    """

    episode_id: str
    spec: Spec
    key_index: Array
    agent_id: Array
    env_time: Array
    reward: Array
    actor_done: Array
    observation: dict[StepKey, Tree]
    action: dict[StepKey, Tree]
    terminated: bool
    truncated: bool
    last_env_time: int
    last_actor: ActorID | None
    last_observation: Tree
    actor_reward: Array | None = None

    def __len__(self) -> int:
        """Number of acts."""
        return len(self.reward)
