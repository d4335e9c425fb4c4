"""The rollout: the one type in which sources of experience and algorithms meet.

An *act* is one policy call and one `env.step`. A *row* is a run of acts of one environment in which no actor acts
twice; it ends when environment time advances, when the next actor has already acted in it, or when the episode ends.
A rollout ends only between environment steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import mapped

Entry = TypeVar("Entry")
Tree = dict[str, Tensor]


def _remembering(parts: Sequence[Any]) -> list[Any]:
    """Segments, or finals, with a state of zero where only actors of others have had one yet."""
    known = {name: tensor for part in parts for name, tensor in part.state.items()}
    shapes = [part.agent_id.shape for part in parts]
    zeros = [{name: x.new_zeros((*shape, *x.shape[len(shape) :])) for name, x in known.items()} for shape in shapes]
    return [replace(part, state=zero | part.state) for part, zero in zip(parts, zeros, strict=True)]


@dataclass
class RowsOf(Generic[Entry]):
    """What belongs to the environments: T rows of N environments, as tensors, or as arrays while they are written.

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
    state: dict[str, Entry] = field(default_factory=dict)


class Segment(SegmentOf[Tensor]):
    """A segment as tensors."""


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

    @staticmethod
    def joined(parts: Sequence[Final]) -> Final:
        """All of them, one after the other."""
        one: Final = mapped(lambda *tensors: torch.cat(tensors), *_remembering(parts)) if parts[1:] else parts[0]
        return one


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
        return self._changed(lambda tensor: tensor.to(device))

    def clone(self) -> Rollout:
        """A copy that later collections leave alone."""
        return self._changed(Tensor.clone)

    def _changed(self, change: Callable[[Any], Any]) -> Rollout:
        return replace(self, **{name: mapped(change, getattr(self, name)) for name in ("rows", "segments", "finals")})

    @staticmethod
    def concatenated(parts: Sequence[Rollout]) -> Rollout:
        """Rollouts of groups of environments as one of all of them, in their order; itself if there is only one.

        Raises:
            ValueError: Some environments attribute rewards to actors, and others do not.
        """
        if len(parts) == 1:
            return parts[0]
        n_rows = max(len(part.rows.filled) for part in parts)

        def beside(*tensors: Tensor) -> Tensor:  # [T_i, B_i, ...] -> [T, B, ...]
            return torch.cat([pad(x, (0, 0) * (x.dim() - 1) + (0, n_rows - len(x))) for x in tensors], 1)

        rows = mapped(beside, *(part.rows for part in parts))
        rows.first_key[~rows.filled] = rows.next_key[~rows.filled] = -1
        segments: dict[StepKey, Any] = {}
        finals: dict[StepKey, Any] = {}
        first_envs = torch.tensor([0, *(part.n_envs for part in parts)]).cumsum(0)
        for key in parts[0].segments:
            acts, ends = ([getattr(part, what)[key] for part in parts] for what in ("segments", "finals"))
            if len({one.actor_reward is None for one in acts}) > 1:
                raise ValueError("get_actor_rewards() must return an array in all environments, or None in all of them")
            segments[key] = mapped(beside, *_remembering(acts))
            ends = [replace(end, env=end.env + first) for end, first in zip(ends, first_envs, strict=False)]
            finals[key] = Final.joined(ends)
        summaries, flat = [summary for part in parts for summary in part.summaries], all(part.flat for part in parts)
        return Rollout(rows, segments, finals, parts[0].n_rollout_steps, flat, summaries)


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
