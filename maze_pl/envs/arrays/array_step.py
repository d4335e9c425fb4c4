"""Results of a step of many environments, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maze_pl.core.actor_id import StepKey

AnyArray = Any
"""A NumPy array, or a torch tensor on any device."""
EnvIndex = Any
"""Index of the environments that act, on the first axis of arrays: `slice(None)` for all, else [n] int64, ascending."""


@dataclass(slots=True)
class ArrayStep:
    """The next actors with their observations, and the results of the acts before.

    All arrays have one entry for each of the N environments. Only the entries of environments that
    have just stepped, or that were just reset, are read, and they are copied at once: an environment
    may return the arrays that its state consists of.

    Attributes:
        observation: Step key -> name -> [N, ...], read where the next actor has this key. Masks are
            observations.
        reward: [N] reward of the act; None after a reset.
        terminated: [N] bool, whether the simulation ended the episode; None if it never does.
        truncated: [N] bool, whether a limit ended the episode; None if none ever does.
        env_time: [N] int, environment steps that are complete since the episode started; None if every act
            completes one. After a reset, None means 0.
        next_key: [N] int, position of the next actor's step key among the step keys; None if there
            is only one.
        next_agent: [N] int, id of the next actor among the agents of its step key; None if each
            step key has a single agent.
        actor_done: [N] bool, whether the actor that just acted is done; None if none is before the
            end of its episode.
        actor_rewards: [N, L] where an environment step or an episode has just ended: the rewards of
            the acts of this environment step, in order; further entries are not read. None if
            rewards are the team's. They are read from the result of the act that completed the step.
        env_reward: [N] reward before wrappers changed it, for statistics; noted by the innermost wrapper, None without
            wrappers.
        env_observation: Observations before wrappers changed them, for statistics; as `env_reward`.
        env_actor_rewards: `actor_rewards` before wrappers changed them, for checks; as `env_reward`.
    """

    observation: Mapping[StepKey, Mapping[str, AnyArray]]
    reward: AnyArray = None
    terminated: AnyArray = None
    truncated: AnyArray = None
    env_time: AnyArray = None
    next_key: AnyArray = None
    next_agent: AnyArray = None
    actor_done: AnyArray = None
    actor_rewards: AnyArray = None
    env_reward: AnyArray = None
    env_observation: Mapping[StepKey, Mapping[str, AnyArray]] | None = None
    env_actor_rewards: AnyArray = None
