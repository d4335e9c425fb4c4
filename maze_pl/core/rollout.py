"""What algorithms learn from: the rollout, and acts drawn from recorded episodes or from replay.

An *act* is one policy call and one `env.step`. A *row* is a run of acts of one environment in which no actor acts
twice; it ends when environment time advances, when the next actor has already acted in it, or when the episode ends.
A rollout ends only between environment steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.spaces import leaves, mapped

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


class Batch:
    """A dataclass with tensors anywhere in its dicts and dataclasses."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same with other tensors."""
        batch: Self = mapped(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, self)
        return batch

    def to(self, device: torch.device | str) -> Self:
        """The same on a device; tensors that are there stay the same."""
        return self.changed(lambda tensor: tensor.to(device))


@dataclass(kw_only=True)
class Experience(Batch, ABC):
    """What a data module collected for one training batch, whatever its form.

    Attributes:
        summaries: Statistics of the episodes that ended while it was collected.
        seconds: How long collecting it took.
        measures: Further statistics of collecting, by name, which the algorithm logs.
    """

    summaries: list[EpisodeSummary] = field(default_factory=list)
    seconds: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def env_steps(self) -> int:
        """Environment time that passed on this rank."""


@dataclass
class Rollout(Experience):
    """Experience of N environments; see the module's docstring for what a row is.

    Tensors are views of storage that the next collection overwrites; take a `clone` to keep them.

    Attributes:
        rows: What belongs to the environments.
        segments: What belongs to the actors, by step key, in the order of the specification.
        finals: Successor observations by step key.
        n_rollout_steps: Environment steps that were asked for from each environment.
        flat: Whether one actor acts exactly once in each row and every row is filled.
        starting: [N] bool, the environments whose former episode, if there was one, was lost without an end before.
    """

    rows: Rows
    segments: dict[StepKey, Segment]
    finals: dict[StepKey, Final]
    n_rollout_steps: int
    flat: bool
    starting: Tensor | None = None

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

    def clone(self) -> Rollout:
        """A copy that later collections leave alone."""
        return self.changed(Tensor.clone)

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
        starting = [part.starting for part in parts if part.starting is not None]
        begun = torch.cat(starting) if starting else None
        return Rollout(rows, segments, finals, parts[0].n_rollout_steps, flat, begun, summaries=summaries)


@dataclass
class Evaluation(Batch):
    """Episodes that an evaluator played, which is one validation batch.

    Attributes:
        name: The evaluator's name.
        summaries: Statistics of the episodes that were played on this rank.
    """

    name: str
    summaries: list[EpisodeSummary]


@dataclass
class Acts:
    """n acts of one sub-step, in any order, from any episodes.

    Attributes:
        observation: Name -> [n, ...], what the actors saw.
        action: Head -> [n, ...], what they did.
        agent_id: [n] int64, who they were.
        next_observation: Name -> [n, ...], what the same actor saw at its next act, or would have seen where the
            episode was cut off. None where it was not asked for, as is the rest.
        reward: [n] float64, what came of the act until then, discounted.
        discount: [n] float64, what the value of the next observation counts for; 0 where terminated.
        terminated: [n] bool, whether the episode ended for the actor before it acted again; the next observation is the
            act's own then, since there is none.
        truncated: [n] bool, whether the episode was cut off before it acted again.
        weight: [n] weight of the act in losses, where acts were not drawn with equal probability.
    """

    observation: Tree
    action: Tree
    agent_id: Tensor
    next_observation: Tree | None = None
    reward: Tensor | None = None
    discount: Tensor | None = None
    terminated: Tensor | None = None
    truncated: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.agent_id)

    def tensors(self) -> list[Tensor]:
        """All of them, those that are there."""
        return leaves(self)

    def with_tensors(self, tensors: Iterable[Tensor]) -> Acts:
        """The same with other tensors, the next ones of an iterator in the order of `tensors()`."""
        rest = iter(tensors)
        acts: Acts = mapped(lambda _: next(rest), self)
        return acts

    @property
    def structure(self) -> tuple[object, ...]:
        """All that is not a tensor: what there is."""
        return tuple(
            (name, tuple(tree) if isinstance(tree, dict) else tree is None) for name, tree in vars(self).items()
        )


@dataclass
class TrajectoryBatch(Batch):
    """Acts of all sub-steps.

    Attributes:
        acts: Those of each sub-step, in the order of the specification; possibly none, but never missing.
    """

    acts: dict[StepKey, Acts]

    def __len__(self) -> int:
        """Number of acts."""
        return sum(map(len, self.acts.values()))


@dataclass
class ReplayBatch(Experience):
    """Acts drawn from a replay buffer for U updates, and the experience that was added to it before.

    Attributes:
        acts: By step key, [U, B, ...] instead of [n, ...]; B is 0 for sub-steps in which nobody has acted yet.
        collected: Environment time that passed on this rank.
        reprioritise: Takes by step key the TD errors [U, B] of these acts, where they are what they are drawn by.
    """

    acts: dict[StepKey, Acts]
    collected: int
    reprioritise: Callable[[dict[StepKey, Tensor]], None] | None = None

    @property
    def env_steps(self) -> int:
        """Environment time that passed on this rank."""
        return self.collected

    def updates(self) -> Iterator[dict[StepKey, Acts]]:
        """The acts of one update after the other, [B, ...], without sub-steps in which nobody has acted yet."""
        present = {key: acts for key, acts in self.acts.items() if acts.agent_id.numel()}
        n_updates = len(next(iter(present.values())))
        for index in range(n_updates):
            yield {key: mapped(lambda tensor, index=index: tensor[index], acts) for key, acts in present.items()}
