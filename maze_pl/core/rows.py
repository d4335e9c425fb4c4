"""Parts of a rollout: rows of its environments, segments of its actors, and final observations.

An *act* is one policy call and one `env.step`. A *row* is a run of acts of one environment in which no actor acts
twice; it ends when environment time advances, when the next actor has already acted in it, or when the episode ends.
A rollout ends only between environment steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from maze_pl.core.spaces import mapped

Entry = TypeVar("Entry")
Tree = dict[str, Tensor]


def with_policy_states(parts: Sequence[Any]) -> list[Any]:
    """Fill in zero policy states for segments or finals without a state, if others have one."""
    known: Tree = {}
    for part in parts:
        known.update(part.policy_state)
    filled = []
    for part in parts:
        leading = part.agent_id.shape
        zeros = {}
        for name, tensor in known.items():
            zeros[name] = tensor.new_zeros((*leading, *tensor.shape[len(leading) :]))
        filled.append(replace(part, policy_state=zeros | part.policy_state))
    return filled


@dataclass
class RowsOf(Generic[Entry]):
    """Data per environment: T rows of N environments; tensors, or arrays during writing.

    Attributes:
        filled: [T, N] bool, True if the row exists; existing rows come first in each column.
        reward: [T, N] float64, sum of the rewards that `env.step` returned for the row's acts.
        terminated: [T, N] bool, the episode ended in a terminal state with this row.
        truncated: [T, N] bool, the episode was cut off with this row.
        env_steps: [T, N] int64, environment time that passed with the row; 0 except in the last row
            of an environment step.
        first_key: [T, N] int64, step key index of the actor that acted first, -1 where not filled.
        first_slot: [T, N] int64, slot of that actor.
        next_key: [T, N] int64, step key index of the actor that acts after the row, -1 after an
            end.
        next_slot: [T, N] int64, slot of that actor, -1 after an end.
    """

    filled: Entry
    reward: Entry
    terminated: Entry
    truncated: Entry
    env_steps: Entry
    first_key: Entry
    first_slot: Entry
    next_key: Entry
    next_slot: Entry


class Rows(RowsOf[Tensor]):
    """Rows as tensors."""


@dataclass
class SegmentOf(Generic[Entry]):
    """The acts of one step key: T rows of B actors, b = environment * n_slots + slot; tensors or arrays, as `RowsOf`.

    An agent keeps its slot until it is done. Then another agent may take it, but not in the same
    row.

    Attributes:
        observation: Name -> [T, B, ...], observation of the actor.
        action: Head -> [T, B, ...], as the policy sampled it.
        active: [T, B] bool, True if the act exists.
        position: [T, B] int64, order of the act in its row.
        agent_id: [T, B] int64.
        reward: [T, B] float64, reward that `env.step` returned for this act.
        actor_done: [T, B] bool, the actor was done with this act.
        is_first: [T, B] bool, the actor's first act in its episode.
        actor_reward: [T, B] float64, reward attributed to this act, if the environment attributes
            rewards.
        log_prob: [T, B] log-probability under the policy that acted, if it was requested.
        policy_state: Name -> [T, B, ...], policy state before the act, if the policy has one.
    """

    observation: dict[str, Entry]
    action: dict[str, Entry]
    active: Entry
    position: Entry
    agent_id: Entry
    reward: Entry
    actor_done: Entry
    is_first: Entry
    actor_reward: Entry | None = None
    log_prob: Entry | None = None
    policy_state: dict[str, Entry] = field(default_factory=dict)


class Segment(SegmentOf[Tensor]):
    """A segment as tensors."""


@dataclass
class FinalObservations:
    """Observations after truncated rows and the rollout's last rows, for actors of one step key.

    These are true successors, never the observation of a reset.

    Attributes:
        row: [F] int64, the row that the observation follows.
        env: [F] int64, index of the environment.
        slot: [F] int64, slot of the actor that would act next.
        agent_id: [F] int64, id of that actor.
        observation: Name -> [F, ...].
        policy_state: Name -> [F, ...], policy state with which the actor would act, if the policy has one.
    """

    row: Tensor
    env: Tensor
    slot: Tensor
    agent_id: Tensor
    observation: Tree
    policy_state: Tree = field(default_factory=dict)

    @staticmethod
    def joined(parts: Sequence[FinalObservations]) -> FinalObservations:
        """Concatenate final observations."""
        if len(parts) == 1:
            return parts[0]
        one: FinalObservations = mapped(lambda *tensors: torch.cat(tensors), *with_policy_states(parts))
        return one
