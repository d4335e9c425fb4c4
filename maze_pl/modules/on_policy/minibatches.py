"""Acts that on-policy algorithms learn from, and their division into minibatches.

A minibatch is a set of filled rows with all acts made in them. Rows are divided evenly, so that the
number of minibatches follows from options and all ranks step equally often.

If the policy is recurrent, a minibatch is a set of sequences of acts instead. Each sequence is of
one actor in one episode, and begins with the state that the actor had at its first act. Sequences
are divided in the same way, separately for each step key.

Minibatches without acts to learn from on any rank are left out, on all ranks: an optimiser with
momentum would move the weights by them, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.rows import Tree
from maze_pl.system.ranks import sum_over_ranks, world_size


@dataclass(slots=True)
class PolicySamples:
    """Acts of one step key in a rollout or in a minibatch.

    The weights of a minibatch are such that `weight.dot(loss)`, averaged over ranks, is the mean of
    `loss` over the valid acts of all ranks. The same holds for `value_weight` and the values that a
    critic is to learn.

    The acts of a recurrent policy form S sequences of at most L acts, n = L * S, in time-major
    order. Shorter sequences are padded with copies of their last act, with weight 0.

    Attributes:
        observation: Name -> [n, ...]; for recurrent state [S, ...] before the first act of each
            sequence.
        action: Head -> [n, ...].
        agent_id: [n] int64.
        advantage: [n]
        return_: [n] target of the value.
        old_value: [n] value before learning; 0 where `value_weight` is 0.
        weight: [n] weight of the act in the loss of the policy.
        value_weight: [n] weight of the act's value in the loss of the critic.
        old_log_prob: [n] log-probability under the policy that acted; 0 if not requested.
        earlier: Further inputs of delta critics: observations of earlier sub-steps of the row.
        critic_state: Name -> [S, ...], separate state of the critic before the first act of each sequence.
        policy_state_names: Names of the entries of `observation` that are policy states.
        share: Sum of `weight`; 1 on average over ranks, 0 if no act counts on any. A tensor []
            unless each row is one act.
        value_share: Sum of `value_weight`; 1 on average over ranks, summed over step keys if they
            share a critic, 0 if no value counts on any. A tensor [] unless each row is one act.
        has_values: False if all of `value_weight` is 0.
    """

    observation: Tree
    action: Tree
    agent_id: Tensor
    advantage: Tensor
    return_: Tensor
    old_value: Tensor
    weight: Tensor
    value_weight: Tensor
    old_log_prob: Tensor
    earlier: Tree = field(default_factory=dict, kw_only=True)
    critic_state: Tree = field(default_factory=dict, kw_only=True)
    policy_state_names: tuple[str, ...] = field(default=(), kw_only=True)
    share: Tensor | float = field(default=1.0, init=False)
    value_share: Tensor | float = field(default=1.0, init=False)
    has_values: bool = field(default=True, init=False)

    @property
    def critic_inputs(self) -> Tree:
        """All inputs of the critic."""
        if not (self.earlier or self.critic_state):
            return self.observation
        return self.observation | self.earlier | self.critic_state

    def tensors(self) -> list[Tensor]:
        """List all tensors: inputs, action, earlier observations, one number per act, shares."""
        return [*self._of_acts(), *self._shares()]

    def _of_acts(self) -> list[Tensor]:
        """List the tensors that have one entry for each act or sequence."""
        inputs = [*self.observation.values(), *self.critic_state.values()]
        trees = [*inputs, *self.action.values(), *self.earlier.values()]
        vectors = [
            self.agent_id,
            self.advantage,
            self.return_,
            self.old_value,
            self.weight,
            self.value_weight,
        ]
        return [*trees, *vectors, self.old_log_prob]

    def _shares(self) -> list[Tensor]:
        """List the shares that are tensors."""
        return [share for share in (self.share, self.value_share) if isinstance(share, Tensor)]

    def with_tensors(self, tensors: Iterable[Tensor]) -> PolicySamples:
        """Return a copy with other tensors: the next of an iterator, ordered as in `tensors()`."""
        rest = iter(tensors)
        observation = {name: next(rest) for name in self.observation}
        critic_state = {name: next(rest) for name in self.critic_state}
        action = {name: next(rest) for name in self.action}
        earlier = {name: next(rest) for name in self.earlier}
        acts = PolicySamples(
            observation,
            action,
            *itertools.islice(rest, 7),
            earlier=earlier,
            critic_state=critic_state,
            policy_state_names=self.policy_state_names,
        )
        acts.share = next(rest) if isinstance(self.share, Tensor) else self.share
        acts.value_share = next(rest) if isinstance(self.value_share, Tensor) else self.value_share
        acts.has_values = self.has_values
        return acts

    @property
    def structure(self) -> tuple[object, ...]:
        """All fields that are not tensors."""
        names = tuple(self.observation), tuple(self.critic_state), tuple(self.action), tuple(self.earlier)
        numbers = [None if isinstance(share, Tensor) else share for share in (self.share, self.value_share)]
        return *names, *numbers, self.has_values

    def select(self, index: Tensor, sequences: Tensor | None = None) -> PolicySamples:
        """Select the acts at `index` [m], in that order; `sequences` selects recurrent states."""
        of_sequences = index if sequences is None else sequences
        places = [of_sequences if name in self.policy_state_names else index for name in self.observation]
        places += [of_sequences] * len(self.critic_state)
        pairs = zip(self._of_acts(), itertools.chain(places, itertools.repeat(index)), strict=False)
        selected = [tensor.index_select(0, place) for tensor, place in pairs]
        return self.with_tensors([*selected, *self._shares()])

    def split(self, sizes: list[int]) -> list[PolicySamples]:
        """Split into consecutive parts of the given sizes, without dividing sequences."""
        n_acts = max(len(self.weight), 1)
        parts = []
        for tensor in self._of_acts():
            own = sizes  # acts; tensors of sequences are shorter
            if len(tensor) != n_acts:
                own = [size * len(tensor) // n_acts for size in sizes]
            parts.append(torch.split(tensor, own))
        return [self.with_tensors([*part, *self._shares()]) for part in zip(*parts, strict=True)]


class _Numbers(NamedTuple):
    """Numbers of a step key in each of M minibatches, on the host.

    Attributes:
        share: `PolicySamples.share`.
        value_share: `PolicySamples.value_share`.
        n_acts: Number of its acts on this rank.
        is_learned: 1 if any step key has acts that count on some rank; the same for all step keys.
    """

    share: list[float]
    value_share: list[float]
    n_acts: list[float]
    is_learned: list[float]


Minibatch = dict[StepKey, PolicySamples]
"""Step key -> acts of a set of rows, without step keys that have no acts in them on this rank."""


@dataclass
class LearningBatch:
    """All acts of a rollout that can be learned from.

    Attributes:
        acts: By step key, with weights of 0 and 1.
        row: By step key, [n] int64 index of the filled row or the sequence that each act belongs
            to; None if act i of each step key belongs to row i.
        n_rows: Number of filled rows; 0 if acts belong to sequences.
        shared: True if the critic has one value for each row.
        open_share: By step key, the number of acts left out because no observation follows them,
            and the number of all acts.
        importance_weight: By step key, [T, B] importance weights rho of V-trace before clipping, 0 of
            acts that do not count in the loss of the policy, and the number of those that do; empty
            for other methods.
        has_open_acts: Whether acts of weight 0 may be among the acts.
    """

    acts: dict[StepKey, PolicySamples]
    row: dict[StepKey, Tensor] | None
    n_rows: int
    shared: bool
    open_share: dict[StepKey, tuple[Tensor | int, int]]
    importance_weight: dict[StepKey, tuple[Tensor, Tensor]] = field(default_factory=dict)
    has_open_acts: bool = False

    @functools.cached_property
    def even(self) -> bool:
        """True if each row has one act of each step key, so that minibatches have equally many acts."""
        if self.row is None:
            return True
        each_once = [torch.arange(self.n_rows, device=row.device) for row in self.row.values()]
        return self.n_rows > 0 and all(map(torch.equal, self.row.values(), each_once))

    def minibatches(self, n_minibatches: int, generator: torch.Generator | None = None) -> list[Minibatch]:
        """Divide the rows into minibatches and gather their acts; a collective call.

        Args:
            n_minibatches: Maximum number of minibatches, equal on all ranks.
            generator: Random generator to shuffle the rows; None keeps their order.

        Returns:
            As many on all ranks. There are fewer than requested if some have no acts that count on
            any rank, such as those that outnumber the sequences of a recurrent policy. One that
            has acts on other ranks only is empty.
        """
        if self.row is None and world_size() == 1:
            return self._equal_minibatches(n_minibatches, generator)
        device = next(iter(self.acts.values())).weight.device
        gathered: dict[StepKey, PolicySamples] = {}
        members: list[Tensor] = []  # by step key [n], minibatch of each gathered act, ascending
        common: _Division | None = None  # of the rows; sequences are divided for each step key
        if self.n_rows:
            common = _divided(self.n_rows, n_minibatches, generator, device)
        for key, acts in self.acts.items():
            if self.row is None:
                assert common is not None
                gathered[key] = acts if common.order is None else acts.select(common.order)
                members.append(common.by_position)
                continue
            division = common or _divided(len(torch.unique(self.row[key])), n_minibatches, generator, device)
            by_row = division.by_row()
            member, order = by_row[self.row[key]].sort(stable=True)  # sequences stay contiguous
            has_state = acts.policy_state_names or acts.critic_state
            gathered[key] = acts.select(order, by_row.argsort(stable=True) if has_state else None)
            members.append(member)
        return self._normalised(gathered, members, n_minibatches)

    def _equal_minibatches(self, n_minibatches: int, generator: torch.Generator | None) -> list[Minibatch]:
        """Divide rows into minibatches if each row has one act of each step key, and there is one rank only."""
        n_minibatches = min(n_minibatches, self.n_rows)
        bounds = [self.n_rows * index // n_minibatches for index in range(n_minibatches + 1)]
        sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
        order: Tensor | None = None
        weights: dict[int, Tensor] = {}
        minibatches: list[Minibatch] = [{} for _ in range(n_minibatches)]
        for key, acts in self.acts.items():
            if not weights:
                weights = {size: torch.full_like(acts.weight[:size], 1.0 / size) for size in set(sizes)}
                if generator is not None:
                    order = _permutation(self.n_rows, generator, acts.weight.device)
            has_values = not (self.shared and minibatches[0])  # a shared value belongs to the first act of a row
            shuffled = acts if order is None else acts.select(order)
            parts = [replace(shuffled)] if n_minibatches == 1 else shuffled.split(sizes)
            for minibatch, part, size in zip(minibatches, parts, sizes, strict=True):
                if self.has_open_acts:
                    count = part.weight.sum()
                    part.weight = part.value_weight = part.weight / count.clamp(min=1.0)
                    part.share = part.value_share = count.clamp(max=1.0)  # 0 if all acts are open
                else:
                    part.weight = part.value_weight = weights[size]
                if not has_values:
                    part.value_weight = torch.zeros_like(part.weight)
                    part.value_share = 0.0
                    part.has_values = False
                minibatch[key] = part
        return minibatches

    def _normalised(
        self, gathered: dict[StepKey, PolicySamples], members: list[Tensor], n_minibatches: int
    ) -> list[Minibatch]:
        """Split the gathered acts, with weights divided by their sums over all ranks."""
        device = members[0].device
        sums = torch.zeros(len(members), 2, n_minibatches, dtype=torch.float64, device=device)
        counts = torch.zeros(len(members), 1, n_minibatches, dtype=torch.float64, device=device)
        for own, count, acts, member in zip(sums, counts, gathered.values(), members, strict=True):
            own[0].index_add_(0, member, acts.weight.double())
            own[1].index_add_(0, member, acts.value_weight.double())
            count[0].index_add_(0, member, torch.ones_like(member, dtype=torch.float64))
        total = sum_over_ranks(sums.clone())
        if self.shared:
            total[:, 1] = total[:, 1].sum(0)
        factors = world_size() / total.clamp(min=1.0)
        shares = sums * factors  # [K, 2, M]
        is_learned = (total > 0.0).any(0).any(0).expand_as(counts)  # on some rank
        numbers_of_keys = torch.cat([shares, counts, is_learned.double()], 1)
        on_host = [_Numbers(*numbers) for numbers in numbers_of_keys.tolist()]  # waits for the device
        minibatches: list[Minibatch] = [{} for _ in range(n_minibatches)]
        for index, (key, acts) in enumerate(gathered.items()):
            own = factors[index].to(acts.weight.dtype)[:, members[index]]
            acts.weight, acts.value_weight = acts.weight * own[0], acts.value_weight * own[1]
            numbers = on_host[index]
            parts = acts.split([int(size) for size in numbers.n_acts])
            of_parts = self._shares_of_parts(shares[index].to(acts.weight.dtype), numbers)
            for minibatch, part, of_part, value_share in zip(
                minibatches, parts, of_parts, numbers.value_share, strict=True
            ):
                if len(part.weight):
                    part.share, part.value_share = of_part
                    part.has_values = value_share != 0.0
                    minibatch[key] = part
        return list(itertools.compress(minibatches, on_host[0].is_learned))

    def _shares_of_parts(self, shares: Tensor, numbers: _Numbers) -> list[tuple[Tensor | float, Tensor | float]]:
        """Return the share and the value share of the acts of a step key in each minibatch.

        They are constants of a traced loss if each row is one act, rounded so that one traced update
        serves all almost equal shares. Otherwise they are tensors, so that one trace serves all
        minibatches.

        Args:
            shares: [2, M] of each minibatch.
            numbers: The same on the host.
        """
        if self.row is None and not self.has_open_acts:
            pairs = zip(numbers.share, numbers.value_share, strict=True)
            return [(round(share, 9), round(value_share, 9)) for share, value_share in pairs]
        share, value_share = shares.unbind(0)
        return list(zip(share.unbind(0), value_share.unbind(0), strict=True))


class _Division(NamedTuple):
    """Division of R rows or sequences into minibatches of almost equal size.

    Attributes:
        by_position: [R] minibatch of the row at each position of the order, ascending.
        order: [R] the rows in shuffled order; None if they keep their order.
    """

    by_position: Tensor
    order: Tensor | None

    def by_row(self) -> Tensor:
        """Return the minibatch of each row, [R]."""
        if self.order is None:
            return self.by_position
        return torch.empty_like(self.by_position).scatter_(0, self.order, self.by_position)


def _divided(n_rows: int, n_minibatches: int, generator: torch.Generator | None, device: torch.device) -> _Division:
    """Divide rows or sequences; arguments as for `LearningBatch.minibatches`."""
    by_position = torch.arange(n_rows, device=device) * n_minibatches
    by_position = by_position.div_(max(n_rows, 1), rounding_mode="floor")
    return _Division(by_position, None if generator is None else _permutation(n_rows, generator, device))


def _permutation(n_rows: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Return a random order of rows [n_rows] on a device, without waiting for the device.

    On an accelerator it is drawn there, from a seed that is drawn from the generator.
    """
    if generator.device == device:
        return torch.randperm(n_rows, generator=generator, device=device)
    seed = int(torch.randint(2**62, (), generator=generator))
    own = torch.Generator(device).manual_seed(seed)
    return torch.randint(2**62, (n_rows,), generator=own, device=device).argsort()


def count_minibatches(batch_size: int, size: int) -> int:
    """Number of minibatches of a rollout, from options alone, so that all ranks step equally often.

    Args:
        batch_size: Environment steps of a minibatch.
        size: Environment steps of the rollout, n_envs * n_rollout_steps.

    Raises:
        ValueError: The batch size does not divide the size of a rollout.
    """
    if size % batch_size == 0:
        return size // batch_size
    below = next(factor for factor in range(min(batch_size, size), 0, -1) if size % factor == 0)
    above = next((factor for factor in range(batch_size, size + 1) if size % factor == 0), below)
    remedy = f"use a factor such as {below} or {above}" if above != below else f"use a factor such as {below}"
    fault = f"batch_size={batch_size} does not divide n_envs * n_rollout_steps = {size}"
    raise ValueError(f"{fault}; {remedy}: --model.batch_size {above}")
