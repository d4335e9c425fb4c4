"""Training data of algorithms: rollouts, and acts drawn from recorded episodes or from replay.

Rows and segments, which rollouts consist of, are defined in `maze_pl.core.rows`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.episode_batch import joined_summaries
from maze_pl.core.rows import FinalObservations, Rows, Segment, Tree, with_policy_states
from maze_pl.core.spaces import mapped


class Batch:
    """Base of dataclasses that hold tensors, possibly nested in dicts and dataclasses."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with `change` applied to each tensor."""
        batch: Self = mapped(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, self)
        return batch

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on a device; tensors already there are not copied."""
        return self.changed(lambda tensor: tensor.to(device))


@dataclass(kw_only=True)
class Experience(Batch, ABC):
    """Data that a data module collected for one training batch, in any form.

    Attributes:
        summaries: Statistics of the episodes that ended during collection.
        seconds: Duration of the collection.
        measures: Further statistics of the collection, by name, which the algorithm logs.
    """

    summaries: Sequence[EpisodeSummary] = field(default_factory=list)
    seconds: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def env_steps(self) -> int:
        """Environment time that passed on this rank."""


@dataclass
class Rollout(Experience):
    """Experience of N environments; `maze_pl.core.rows` defines rows.

    Tensors are views of storage that the next collection overwrites; take a `clone` to keep them.

    Attributes:
        rows: Data per environment.
        segments: Data of the actors, by step key, in the order of the specification.
        finals: Successor observations by step key.
        n_rollout_steps: Requested environment steps per environment.
        flat: Whether one actor acts exactly once in each row and every row is filled.
        starting: [N] bool, True if acts of the environment after those of its previous rollout, if any, were lost:
            the end of its episode, or rollouts that a run has not learned from before it was resumed.
        env_index: [N] int64, number of each environment on this rank, if rollouts do not all hold
            the same environments; `to` leaves it on the host, which reads it. If an environment
            occurs several times, each occurrence continues the previous one.
        n_env_steps: Environment time that passed, over all environments; None to sum up the rows.
        n_same_starts: Number of consecutive environments that play each start. If there are several, all
            environments begin new episodes with the rollout, so that the episodes of such a group
            with the same place in the rollout have the same start.
        dense: Whether every row is filled, and consists of one act of each step key in their order.
    """

    rows: Rows
    segments: dict[StepKey, Segment]
    finals: dict[StepKey, FinalObservations]
    n_rollout_steps: int
    flat: bool
    starting: Tensor | None = None
    env_index: Tensor | None = None
    n_env_steps: int | None = None
    n_same_starts: int = 1
    dense: bool = False

    @property
    def n_envs(self) -> int:
        """Number of environments."""
        return int(self.rows.filled.shape[1])

    @property
    def env_steps(self) -> int:
        """Environment time that passed, over all environments."""
        return int(self.rows.env_steps.sum()) if self.n_env_steps is None else self.n_env_steps

    def n_slots(self, step_key: StepKey) -> int:
        """Slots of a step key in each environment.

        There is one for each agent that may be alive at once, and more if new agents had to be kept
        apart from agents that finished in the same row.
        """
        return int(self.segments[step_key].active.shape[1]) // self.n_envs

    def to(self, device: torch.device | str) -> Rollout:
        """Return the rollout on a device, but for `env_index`; tensors already there are not copied."""
        moved = replace(self, env_index=None).changed(lambda tensor: tensor.to(device))
        return replace(moved, env_index=self.env_index)

    def clone(self) -> Rollout:
        """Return a copy that later collections do not overwrite."""
        return self.changed(Tensor.clone)

    @staticmethod
    def concatenated(parts: Sequence[Rollout]) -> Rollout:
        """Concatenate rollouts of groups of environments, in order; one rollout is returned as is.

        Raises:
            ValueError: Some environments attribute rewards to actors, and others do not.
        """
        if len(parts) == 1:
            return parts[0]
        n_rows = max(len(part.rows.filled) for part in parts)

        def side_by_side(*tensors: Tensor) -> Tensor:  # [T_i, B_i, ...] -> [T, B, ...]
            return torch.cat([pad(x, (0, 0) * (x.dim() - 1) + (0, n_rows - len(x))) for x in tensors], 1)

        rows = mapped(side_by_side, *(part.rows for part in parts))
        rows.first_key[~rows.filled] = rows.next_key[~rows.filled] = -1
        segments: dict[StepKey, Any] = {}
        finals: dict[StepKey, Any] = {}
        first_envs = torch.tensor([0, *(part.n_envs for part in parts)]).cumsum(0)
        for key in parts[0].segments:
            n_slots = max(part.n_slots(key) for part in parts)
            acts = [_widened(part, key, n_slots) for part in parts]
            if len({one.actor_reward is None for one in acts}) > 1:
                raise ValueError("get_actor_rewards() must return an array in all environments, or None in all of them")
            segments[key] = mapped(side_by_side, *with_policy_states(acts))
            ends = [part.finals[key] for part in parts]
            ends = [replace(end, env=end.env + first) for end, first in zip(ends, first_envs, strict=False)]
            finals[key] = FinalObservations.joined(ends)
        summaries = joined_summaries([part.summaries for part in parts])
        flat = all(part.flat for part in parts)
        starting = [part.starting for part in parts if part.starting is not None]
        begun = torch.cat(starting) if starting else None
        rollout = Rollout(rows, segments, finals, parts[0].n_rollout_steps, flat, begun, summaries=summaries)
        rollout.n_same_starts = parts[0].n_same_starts
        rollout.dense = all(part.dense and len(part.rows.filled) == n_rows for part in parts)
        counts = [part.n_env_steps for part in parts if part.n_env_steps is not None]
        if len(counts) == len(parts):
            rollout.n_env_steps = sum(counts)
        return rollout


def _widened(rollout: Rollout, key: StepKey, n_slots: int) -> Segment:
    """Return the segment of a step key, widened to `n_slots` slots in each environment."""
    segment, more = rollout.segments[key], n_slots - rollout.n_slots(key)
    if not more:
        return segment

    def widen(tensor: Tensor) -> Tensor:  # [T, N * (n_slots - more), ...] -> [T, N * n_slots, ...]
        slots = tensor.view(len(tensor), rollout.n_envs, -1, *tensor.shape[2:])
        return pad(slots, (0, 0) * (slots.dim() - 3) + (0, more)).flatten(1, 2)

    widened: Segment = mapped(widen, segment)
    return widened


@dataclass
class Evaluation(Batch):
    """Episodes played by an evaluator; one validation batch.

    Attributes:
        name: Name of the evaluator.
        summaries: Statistics of the episodes played on this rank.
    """

    name: str
    summaries: Sequence[EpisodeSummary]


class Outcome(NamedTuple):
    """Outcomes of n acts; see `TransitionBatch` for the fields.

    Attributes:
        next_observation: Name -> [n, ...].
        reward: [n].
        discount: [n].
    """

    next_observation: Tree
    reward: Tensor
    discount: Tensor


@dataclass
class TransitionBatch:
    """n acts of one sub-step, in any order, from any episodes.

    Attributes:
        observation: Name -> [n, ...], observations of the actors.
        action: Head -> [n, ...], their actions.
        agent_id: [n] int64, their ids.
        next_observation: Name -> [n, ...], observation of the same actor at its next act, or its
            final observation if the episode was cut off. This and the following fields are None if
            not requested.
        reward: [n] discounted sum of rewards until the next act; float64 from recorded episodes,
            float32 from replay.
        discount: [n] factor of the value of the next observation, of the same type; 0 where
            terminated.
        terminated: [n] bool, whether the episode ended for the actor before it acted again; there
            is no next observation then, and the act's observation takes its place.
        truncated: [n] bool, whether the episode was cut off before the actor acted again.
        weight: [n] weight of the act in losses, if acts were not drawn with equal probability.
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

    @property
    def outcome(self) -> Outcome:
        """Next observations, rewards and discounts.

        Raises:
            ValueError: These fields were not requested when the acts were read or drawn.
        """
        if self.next_observation is None or self.reward is None or self.discount is None:
            processor = "maze_pl.datasets.IdentityWithNextObservationTrajectoryProcessor"
            raise ValueError(f"these acts have no next observations and rewards: set trajectory_processor={processor}")
        return Outcome(self.next_observation, self.reward, self.discount)

    def weighted_mean(self, values: Tensor) -> Tensor:
        """Return the mean of values [n] of the acts, with their weights in losses."""
        return (values if self.weight is None else self.weight * values).mean()

    def tensors(self) -> list[Tensor]:
        """List all tensors, without fields that are None."""
        following = self.next_observation or {}
        every = [*self.observation.values(), *self.action.values(), self.agent_id, *following.values()]
        return every + [vector for vector in self._of_outcomes() if vector is not None]

    def with_tensors(self, tensors: Iterable[Tensor]) -> TransitionBatch:
        """Return a copy with other tensors, taken from an iterable in the order of `tensors()`."""
        rest = iter(tensors)
        observation = {name: next(rest) for name in self.observation}
        action = {name: next(rest) for name in self.action}
        agent_id = next(rest)
        following = self.next_observation
        next_observation = None if following is None else {name: next(rest) for name in following}
        vectors = [None if vector is None else next(rest) for vector in self._of_outcomes()]
        return TransitionBatch(observation, action, agent_id, next_observation, *vectors)

    def _of_outcomes(self) -> list[Tensor | None]:
        """List the fields after `next_observation`."""
        return [self.reward, self.discount, self.terminated, self.truncated, self.weight]

    @property
    def structure(self) -> tuple[object, ...]:
        """Structure without the tensors: the names in each dict, and the fields that are None."""
        return tuple(
            (name, tuple(tree) if isinstance(tree, dict) else tree is None) for name, tree in vars(self).items()
        )


@dataclass
class TrajectoryBatch(Batch):
    """Acts of all sub-steps.

    Attributes:
        acts: Acts of each sub-step, in the order of the specification; possibly empty, but never
            missing.
    """

    acts: dict[StepKey, TransitionBatch]

    def __len__(self) -> int:
        """Number of acts."""
        return sum(map(len, self.acts.values()))


@dataclass
class BestEpisodesBatch(TrajectoryBatch, Experience):
    """Acts of the best of several episodes from each start, which a policy has played for this purpose.

    Episodes are played once per epoch, and are counted in its first batch.
    """

    @property
    def env_steps(self) -> int:
        """Zero, since progress is counted in acts, as with recorded episodes."""
        return 0


@dataclass
class ReplayBatch(Experience):
    """Acts drawn from a replay buffer for U updates, and the experience that was added to it before.

    Attributes:
        acts: By step key, [U, B, ...] instead of [n, ...]; B is 0 for sub-steps in which no actor has acted yet.
        collected: Environment time that passed on this rank.
        reprioritise: Takes the TD errors [U, B] of these acts by step key, if replay is prioritised
            by them.
    """

    acts: dict[StepKey, TransitionBatch]
    collected: int
    reprioritise: Callable[[dict[StepKey, Tensor]], None] | None = None

    @property
    def env_steps(self) -> int:
        """Environment time that passed on this rank."""
        return self.collected

    def updates(self) -> Iterator[dict[StepKey, TransitionBatch]]:
        """Yield the acts of each update, [B, ...], without sub-steps that have no acts yet."""
        present = {key: acts for key, acts in self.acts.items() if acts.agent_id.numel()}
        n_updates = len(next(iter(present.values())))
        rows = {key: [tensor.unbind() for tensor in acts.tensors()] for key, acts in present.items()}
        for index in range(n_updates):
            yield {key: acts.with_tensors(row[index] for row in rows[key]) for key, acts in present.items()}
