"""The rollout: the one type in which sources of experience and algorithms meet.

An *act* is one policy call and one `env.step`. A *row* is a run of acts of one environment in which no actor acts
twice; it ends when environment time advances, when the next actor has already acted in it, or when the episode ends.
A rollout ends only between environment steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary

Tree = dict[str, Tensor]
T = TypeVar("T")


def _move(value: Any, device: torch.device | str | None) -> Any:
    """Copy of a dataclass of tensors on `device`, or of all its storage where `device` is None."""
    if isinstance(value, Tensor):
        return value.clone() if device is None else value.to(device)
    if isinstance(value, dict):
        return {key: _move(child, device) for key, child in value.items()}
    if isinstance(value, Rows | Segment | Final):
        return replace(value, **{entry.name: _move(getattr(value, entry.name), device) for entry in fields(value)})
    return value


@dataclass
class Rows:
    """What belongs to the environments: T rows of N environments.

    Attributes:
        filled: [T, N] bool, which rows exist; those of an environment are the first ones of its column.
        reward: [T, N] float64, sum over the row's acts of what `env.step` returned.
        terminated: [T, N] bool, the episode ended in a terminal state with this row.
        truncated: [T, N] bool, the episode was cut off with this row.
        env_steps: [T, N] int64, environment time that the row advanced; 0 for all but the last of an environment step.
        first_key: [T, N] int64, position among the step keys of the actor that acted first, -1 where not filled.
        first_slot: [T, N] int64, slot of that actor.
        next_key: [T, N] int64, position among the step keys of the actor that acts after the row, -1 after an end.
        next_slot: [T, N] int64, slot of that actor, -1 after an end.
    """

    filled: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    env_steps: Tensor
    first_key: Tensor
    first_slot: Tensor
    next_key: Tensor
    next_slot: Tensor


@dataclass
class Segment:
    """The acts of one step key: T rows of B actors, b = environment * n_slots + slot.

    Attributes:
        observation: Name -> [T, B, ...], what the actor saw.
        action: Head -> [T, B, ...], as the policy sampled it.
        active: [T, B] bool, which acts exist.
        position: [T, B] int64, order of the act in its row.
        agent_id: [T, B] int64.
        reward: [T, B] float64, what `env.step` returned for this act.
        actor_done: [T, B] bool, the actor was done with this act.
        is_first: [T, B] bool, the actor's first act in its episode.
        actor_reward: [T, B] float64, the reward attributed to this act, if the environment attributes rewards.
        log_prob: [T, B] log-probability under the policy that acted, if it was asked for.
        state: Name -> [T, B, ...], the policy's state before the act, if it has one.
    """

    observation: Tree
    action: Tree
    active: Tensor
    position: Tensor
    agent_id: Tensor
    reward: Tensor
    actor_done: Tensor
    is_first: Tensor
    actor_reward: Tensor | None = None
    log_prob: Tensor | None = None
    state: Tree = field(default_factory=dict)


@dataclass
class Final:
    """Observations that follow truncated rows and the rollout's end, of the actors of one step key.

    These are true successors: never the observation of a reset.

    Attributes:
        row: [F] int64, the row that the observation follows.
        env: [F] int64.
        slot: [F] int64, slot of the actor that would act next.
        agent_id: [F] int64, its id.
        observation: Name -> [F, ...].
        state: Name -> [F, ...], the state with which the actor would act, if the policy has one.
    """

    row: Tensor
    env: Tensor
    slot: Tensor
    agent_id: Tensor
    observation: Tree
    state: Tree = field(default_factory=dict)


@dataclass
class Rollout:
    """Experience of N environments; see the module's docstring for what a row is.

    Tensors are views of storage that the next collection overwrites; take a `clone` to keep them.

    Attributes:
        rows: What belongs to the environments.
        segments: What belongs to the actors, by step key, in the order of the specification.
        finals: Successor observations by step key.
        n_rollout_steps: Environment steps that were asked for from each environment.
        flat: Whether one actor acts exactly once in each row and every row is filled.
        summaries: Statistics of the episodes that ended in this rollout.
        seconds: How long collecting it took.
    """

    rows: Rows
    segments: dict[StepKey, Segment]
    finals: dict[StepKey, Final]
    n_rollout_steps: int
    flat: bool
    summaries: list[EpisodeSummary] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def n_envs(self) -> int:
        """Number of environments."""
        return int(self.rows.filled.shape[1])

    @property
    def env_steps(self) -> int:
        """Environment time that passed, over all environments."""
        return int(self.rows.env_steps.sum())

    def n_slots(self, step_key: StepKey) -> int:
        """Number of agents of a step key that may be alive at once."""
        return int(self.segments[step_key].active.shape[1]) // self.n_envs

    def to(self, device: torch.device | str) -> Rollout:
        """The rollout on a device; itself where it is there."""
        if self.rows.filled.device == torch.device(device):
            return self
        return replace(
            self,
            rows=_move(self.rows, device),
            segments=_move(self.segments, device),
            finals=_move(self.finals, device),
        )

    def clone(self) -> Rollout:
        """A copy that later collections leave alone."""
        return replace(
            self, rows=_move(self.rows, None), segments=_move(self.segments, None), finals=_move(self.finals, None)
        )


@dataclass
class Evaluation:
    """Episodes that an evaluator played, which is one validation batch.

    Attributes:
        name: The evaluator's name.
        summaries: Statistics of the episodes that were played on this rank.
    """

    name: str
    summaries: list[EpisodeSummary]

    def to(self, device: torch.device | str) -> Evaluation:
        """The evaluation itself, which holds no tensors."""
        return self
