"""From a rollout to what on-policy algorithms learn from: acts with advantages and value targets, in minibatches.

Values and log-probabilities are computed once per rollout, batched over the acts of each step key. A minibatch is a set
of filled rows, with all the acts that were made in them; rows are dealt out evenly, so that the number of minibatches
follows from configuration alone and all ranks step equally often.

Where the policy carries a state from act to act, a minibatch is a set of sequences of acts instead, each of one actor
in one episode, which begins with the state that the actor had then. They are dealt out in the same way, those of each
step key by themselves. Gradients flow back to a sequence's first act: truncated back-propagation through time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.torch_state_critic import name_in_row
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.rollout import Rollout, Segment, Tree
from maze_pl.modules.credit import Credit, delta_credit, shared_credit, step_credit
from maze_pl.modules.ranks import sum_over_ranks, world_size

MOST_ELEMENTS = 2**23
"""Of observations that are evaluated together where no gradient is wanted: 32 MiB as float32."""


@dataclass(slots=True)
class Acts:
    """Acts of one step key, those of a rollout or of a minibatch.

    The weights of a minibatch are such that `weight @ loss`, averaged over ranks, is the mean of `loss` over the valid
    acts of all ranks; the same holds for `value_weight` and the values that a critic is to learn.

    The acts of a policy that carries a state are S sequences of at most L, n = L * S, act by act: those of S actors at
    a time. Shorter ones are filled up with copies of their last act, of weight 0.

    Attributes:
        observation: Name -> [n, ...], and of what is carried [S, ...] before the first act of each sequence.
        action: Head -> [n, ...].
        agent_id: [n] int64.
        advantage: [n]
        return_: [n] target of the value.
        old_value: [n] value before learning; 0 where `value_weight` is 0.
        weight: [n] weight of the act in the loss of the policy.
        value_weight: [n] weight of its value in the loss of the critic.
        old_log_prob: [n] log-probability under the policy that acted; 0 if it was not asked for.
        earlier: What the critic also sees: observations of earlier sub-steps of the row, for delta critics only.
        carried: Names among `observation` of what is carried from act to act.
        share: Sum of `weight`; 1 on average over ranks.
        value_share: Sum of `value_weight`; 1 on average over ranks, summed over step keys if they share a critic.
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
    carried: tuple[str, ...] = field(default=(), kw_only=True)
    share: float = field(default=1.0, init=False)
    value_share: float = field(default=1.0, init=False)

    @property
    def judged(self) -> Tree:
        """All that the critic sees."""
        return self.observation | self.earlier if self.earlier else self.observation

    def vectors(self) -> tuple[Tensor, ...]:
        """All that has one number for each act."""
        return (
            self.agent_id,
            self.advantage,
            self.return_,
            self.old_value,
            self.weight,
            self.value_weight,
            self.old_log_prob,
        )

    def select(self, index: Tensor, sequences: Tensor | None = None) -> Acts:
        """The acts at `index` [m], in that order, which are those of `sequences` if there are any."""
        places = dict.fromkeys(self.carried, index if sequences is None else sequences)
        return Acts(
            {name: tensor.index_select(0, places.get(name, index)) for name, tensor in self.observation.items()},
            {name: tensor.index_select(0, index) for name, tensor in self.action.items()},
            *(vector.index_select(0, index) for vector in self.vectors()),
            earlier={name: tensor.index_select(0, index) for name, tensor in self.earlier.items()},
            carried=self.carried,
        )

    def split(self, sizes: list[int]) -> list[Acts]:
        """Consecutive parts of the given sizes; of sequences, parts with whole ones."""
        n_acts, n_carried = len(self.weight), {name: len(self.observation[name]) for name in self.carried}
        places = {name: [size * n // max(n_acts, 1) for size in sizes] for name, n in n_carried.items()}
        observations = {name: torch.split(t, places.get(name, sizes)) for name, t in self.observation.items()}
        actions = {name: torch.split(tensor, sizes) for name, tensor in self.action.items()}
        earlier = {name: torch.split(tensor, sizes) for name, tensor in self.earlier.items()}
        vectors = zip(*(torch.split(vector, sizes) for vector in self.vectors()), strict=True)
        return [
            Acts(
                {name: parts[index] for name, parts in observations.items()},
                {name: parts[index] for name, parts in actions.items()},
                *part,
                earlier={name: parts[index] for name, parts in earlier.items()},
                carried=self.carried,
            )
            for index, part in enumerate(vectors)
        ]


Minibatch = dict[StepKey, Acts]
"""The acts of a set of rows, without step keys that did not act in them on this rank."""


def flatten_minibatch(
    minibatch: Minibatch,
) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Minibatch], tuple[object, ...]]:
    """A minibatch as a list of tensors.

    Returns:
        The tensors, what puts such tensors together to a minibatch again, and all that is not a tensor.
    """
    tensors: list[Tensor] = []
    structure = []
    for step_key, acts in minibatch.items():
        tensors += [*acts.observation.values(), *acts.action.values(), *acts.earlier.values(), *acts.vectors()]
        names = tuple(acts.observation), tuple(acts.action), tuple(acts.earlier)
        structure.append((step_key, *names, round(acts.share, 9), round(acts.value_share, 9)))

    def rebuild(values: Sequence[Tensor]) -> Minibatch:
        rest = iter(values)
        rebuilt = {}
        for step_key, observations, actions, earlier_names, share, value_share in structure:
            observation = {name: next(rest) for name in observations}
            action = {name: next(rest) for name in actions}
            earlier = {name: next(rest) for name in earlier_names}
            vectors = [next(rest) for _ in range(7)]
            rebuilt[step_key] = Acts(observation, action, *vectors, earlier=earlier)
            rebuilt[step_key].share, rebuilt[step_key].value_share = share, value_share
        return rebuilt

    return tensors, rebuild, tuple(structure)


@dataclass
class LearningBatch:
    """All acts of a rollout that can be learned from.

    Attributes:
        acts: By step key, with weights of 0 and 1.
        row: By step key, [n] int64, which filled row or which sequence each act belongs to; None if act i belongs to
            row i.
        n_rows: Number of filled rows; 0 where acts belong to sequences.
        shared: Whether the critic has one value for each row.
        open_share: By step key, acts left out because no observation follows them, and acts in all.
    """

    acts: dict[StepKey, Acts]
    row: dict[StepKey, Tensor] | None
    n_rows: int
    shared: bool
    open_share: dict[StepKey, tuple[int, int]]

    @property
    def even(self) -> bool:
        """Whether minibatches of equally many rows have the same number of acts of each step key."""
        return self.row is None or all(len(acts.weight) == self.n_rows > 0 for acts in self.acts.values())

    def minibatches(self, n_minibatches: int, generator: torch.Generator | None = None) -> list[Minibatch]:
        """Deal the rows out to minibatches and gather them; every rank must call it.

        Args:
            n_minibatches: Their number, equal on all ranks.
            generator: Shuffles the rows; None leaves them in order.
        """
        if self.row is None and world_size() == 1:
            return self._equal_minibatches(n_minibatches, generator)
        device = next(iter(self.acts.values())).weight.device
        gathered: dict[StepKey, Acts] = {}
        members: list[Tensor] = []  # for each step key [n], the minibatch of each act as gathered, ascending
        for key, acts in self.acts.items():
            if not (members and self.n_rows):
                n_rows = self.n_rows or len(torch.unique((self.row or {})[key]))
                place = (torch.arange(n_rows) * n_minibatches).div_(max(n_rows, 1), rounding_mode="floor")
                shuffled = None if generator is None else torch.randperm(n_rows, generator=generator)
                if shuffled is not None and self.row is not None:
                    place = torch.empty_like(place).scatter_(0, shuffled, place)  # of the i-th row, not the i-th dealt
                place = place.to(device)
            order = None if shuffled is None else shuffled.to(device)
            member = place
            if self.row is not None:
                member, order = place[self.row[key]].sort(stable=True)  # stable: sequences stay side by side
            sequences = place.argsort(stable=True) if acts.carried else None
            gathered[key] = acts if order is None else acts.select(order, sequences)
            members.append(member)
        return self._normalised(gathered, members, n_minibatches)

    def _equal_minibatches(self, n_minibatches: int, generator: torch.Generator | None) -> list[Minibatch]:
        """The same where each row is one act that counts, and there are no other ranks to ask how many they have."""
        ((key, acts),) = self.acts.items()
        bounds = [self.n_rows * index // n_minibatches for index in range(n_minibatches + 1)]
        sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
        if generator is not None:
            acts = acts.select(torch.randperm(self.n_rows, generator=generator).to(acts.weight.device))
        parts = [replace(acts)] if n_minibatches == 1 else acts.split(sizes)
        weights = {size: torch.full_like(acts.weight[:size], 1.0 / size) for size in set(sizes)}
        for part, size in zip(parts, sizes, strict=True):
            part.weight = part.value_weight = weights[size]
        return [{key: part} for part in parts]

    def _normalised(self, gathered: dict[StepKey, Acts], members: list[Tensor], n_minibatches: int) -> list[Minibatch]:
        """Split what was gathered, with weights divided by their sums over all ranks."""
        device = members[0].device
        sums = torch.zeros(len(members), 2, n_minibatches, dtype=torch.float64, device=device)
        for own, acts, member in zip(sums, gathered.values(), members, strict=True):
            own[0].index_add_(0, member, acts.weight.double())
            own[1].index_add_(0, member, acts.value_weight.double())
        total = sum_over_ranks(sums.clone())
        if self.shared:
            total[:, 1] = total[:, 1].sum(0)
        factors = world_size() / total.clamp(min=1.0)
        shares = (sums * factors).tolist()
        minibatches: list[Minibatch] = [{} for _ in range(n_minibatches)]
        for index, (key, acts) in enumerate(gathered.items()):
            factor = factors[index].to(acts.weight.dtype)[:, members[index]]
            acts.weight, acts.value_weight = acts.weight * factor[0], acts.value_weight * factor[1]
            sizes = torch.bincount(members[index], minlength=n_minibatches).tolist()
            for position, part in enumerate(acts.split(sizes)):
                if sizes[position]:
                    part.share, part.value_share = shares[index][0][position], shares[index][1][position]
                    minibatches[position][key] = part
        return minibatches


def learning_batch(
    actor_critic: TorchActorCritic,
    rollout: Rollout,
    gamma: float,
    gae_lambda: float,
    *,
    normalize_advantage: bool,
    with_log_prob: bool,
    sequence_length: int = 16,
) -> LearningBatch:
    """Evaluate a rollout and give credit to its acts; every rank must call it.

    Networks are evaluated in evaluation mode, as they were when they acted.

    Args:
        actor_critic: Policy and critic.
        rollout: What was collected.
        gamma: Discount of one unit of environment time.
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages.
        normalize_advantage: Bring advantages to mean 0 and standard deviation 1, for each step key over the valid acts
            of all ranks.
        with_log_prob: Whether log-probabilities are needed.
        sequence_length: Most acts of a sequence, where the policy carries a state.

    Raises:
        ValueError: There is no critic.
    """
    critic = actor_critic.critic
    if critic is None:
        raise ValueError("this algorithm needs a critic, but the networks have none; name one in the composer")
    shared = critic.kind == "shared"
    with evaluation_mode(actor_critic), torch.no_grad():
        chosen = {key: _chosen(segment, rollout.flat) for key, segment in rollout.segments.items()}
        delta = critic.kind == "delta"
        if delta:
            for key, part in chosen.items():
                part.earlier = _earlier(rollout, key, part.index)
        if rollout.flat:
            values, final_values = _flat_values(critic, rollout, chosen)
        else:
            values = {key: _values(critic, key, part, shared) for key, part in chosen.items()}
            final_values = {
                key: _final_value(critic, rollout, key) if len(final.row) else torch.zeros(0)
                for key, final in rollout.finals.items()
            }
        log_probs = {
            key: _log_prob(actor_critic, key, part)
            if with_log_prob
            else torch.zeros_like(part.agent_id, dtype=torch.float32)
            for key, part in chosen.items()
        }
        give_credit = delta_credit if delta else step_credit
        if shared or rollout.flat:  # where one actor acts in each row they are the same
            give_credit = shared_credit
        credit = give_credit(rollout, values, final_values, gamma, gae_lambda)
        acts = {key: _acts(part, values[key], log_probs[key], credit[key]) for key, part in chosen.items()}
        if normalize_advantage:
            normalize_advantages(acts)
    n_valid = {key: len(part.weight) for key, part in acts.items()}
    open_share = {key: (len(part.agent_id) - n_valid[key], len(part.agent_id)) for key, part in chosen.items()}
    if any(segment.state for segment in rollout.segments.values()):
        sequences = {}
        for key, part in chosen.items():
            acts[key], sequences[key] = _in_sequences(acts[key], part, credit[key], sequence_length)
        return LearningBatch(acts, sequences, 0, shared, open_share)
    rows = None if rollout.flat else _rows(rollout, chosen, credit)
    filled = rollout.rows.filled
    return LearningBatch(acts, rows, filled.numel() if rollout.flat else int(filled.sum()), shared, open_share)


def normalize_advantages(acts: dict[StepKey, Acts]) -> None:
    """Bring the advantages of each step key to mean 0 and standard deviation 1 over all ranks.

    Every rank must call it. A step key with a single act on all ranks gets an advantage of 0.
    """
    advantages = [part.advantage.double() for part in acts.values()]
    moments = torch.stack([torch.stack([x.new_tensor(len(x)), x.sum(), x.square().sum()]) for x in advantages])
    count, total, square = sum_over_ranks(moments).unbind(1)
    mean = total / count.clamp(min=1.0)
    deviation = (square / count.clamp(min=1.0) - mean.square()).clamp(min=0.0).sqrt()
    for index, part in enumerate(acts.values()):
        normalised = (advantages[index] - mean[index]) / (deviation[index] + 1e-8)
        part.advantage = normalised.to(part.advantage.dtype)


@dataclass(slots=True)
class _Chosen:
    """The acts of a segment that exist: `index` [n] into [T * B] (None: all of them), and what was seen and done."""

    segment: Segment
    index: Tensor | None
    observation: Tree
    action: Tree
    agent_id: Tensor
    earlier: Tree = field(default_factory=dict)

    def take(self, tensor: Tensor) -> Tensor:
        """[T, B, ...] -> [n, ...]"""
        flat = tensor.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)


def _chosen(segment: Segment, flat: bool) -> _Chosen:
    index = None if flat else segment.active.flatten().nonzero().squeeze(1)
    chosen = _Chosen(segment, index, {}, {}, segment.agent_id)
    seen = segment.observation | segment.state
    chosen.observation = {name: chosen.take(tensor) for name, tensor in seen.items()}
    chosen.action = {name: chosen.take(tensor) for name, tensor in segment.action.items()}
    chosen.agent_id = chosen.take(segment.agent_id)
    return chosen


def _earlier(rollout: Rollout, step_key: StepKey, index: Tensor | None) -> Tree:
    """Name -> [n, ...] what earlier sub-steps observed in the rows at `index` [n] into [T * N], one act of each."""
    before = itertools.takewhile(lambda item: item[0] != step_key, rollout.segments.items())
    return {
        name_in_row(key, name): tensor.flatten(0, 1).index_select(0, index)
        for key, segment in before
        for name, tensor in segment.observation.items()
        if index is not None
    }


def _final_value(critic: StateCritic, rollout: Rollout, key: StepKey) -> Tensor:
    """[F] values of the final observations of a step key."""
    final = rollout.finals[key]
    earlier = _earlier(rollout, key, final.row * rollout.n_envs + final.env) if critic.kind == "delta" else {}
    return critic.value(key, final.observation | final.state | earlier, final.agent_id)


def _values(critic: StateCritic, key: StepKey, chosen: _Chosen, shared: bool) -> Tensor:
    """[T, B] values, 0 where they are not needed."""
    assert chosen.index is not None
    shape = chosen.segment.active.shape
    index, observation, agent_id = chosen.index, chosen.observation | chosen.earlier, chosen.agent_id
    if shared:
        first = (chosen.take(chosen.segment.position) == 0).nonzero().squeeze(1)
        observation = {name: tensor.index_select(0, first) for name, tensor in observation.items()}
        index, agent_id = index[first], agent_id[first]
    if not len(index):
        return torch.zeros(shape, device=index.device)
    value = _in_parts(partial(critic.value, key), observation, agent_id)
    return value.new_zeros(shape.numel()).index_copy_(0, index, value).view(shape)


def _flat_values(
    critic: StateCritic, rollout: Rollout, chosen: dict[StepKey, _Chosen]
) -> tuple[dict[StepKey, Tensor], dict[StepKey, Tensor]]:
    """[T, N] values and [F] those of the final observations, where every row is one act; evaluated together."""
    ((key, part),) = chosen.items()
    final = rollout.finals[key]
    following, shape = final.observation | final.state, part.segment.active.shape
    if _n_parts(part.observation) > 1:  # so large that the copy costs more than evaluating twice
        value = _in_parts(partial(critic.value, key), part.observation, part.agent_id)
        return {key: value.view(shape)}, {key: critic.value(key, following, final.agent_id)}
    observation = {name: torch.cat([tensor, following[name]]) for name, tensor in part.observation.items()}
    value = critic.value(key, observation, torch.cat([part.agent_id, final.agent_id]))
    n_acts = len(part.agent_id)
    return {key: value[:n_acts].view(shape)}, {key: value[n_acts:]}


def _log_prob(actor_critic: TorchActorCritic, key: StepKey, chosen: _Chosen) -> Tensor:
    """[n] log-probabilities under the policy that acted."""
    if chosen.segment.log_prob is not None:
        return chosen.take(chosen.segment.log_prob)
    if not len(chosen.agent_id):
        return torch.zeros(0, device=chosen.agent_id.device)

    def evaluate(observation: Tree, agent_id: Tensor, action: Tree) -> Tensor:
        return actor_critic.policy.distribution(key, observation, agent_id).log_prob(action)

    return _in_parts(evaluate, chosen.observation, chosen.agent_id, chosen.action)


def _n_parts(observation: Tree) -> int:
    """In how many parts acts are evaluated where no gradient is wanted."""
    return -(-sum(tensor.numel() for tensor in observation.values()) // MOST_ELEMENTS)


def _in_parts(evaluate: Callable[..., Tensor], observation: Tree, agent_id: Tensor, *others: Tree) -> Tensor:
    """[n] what networks give for acts, not for all at once where they are large: there images become floats."""
    n_parts = _n_parts(observation)
    if n_parts < 2:
        return evaluate(observation, agent_id, *others)
    size = -(-len(agent_id) // n_parts)
    values = []
    for part in (slice(start, start + size) for start in range(0, len(agent_id), size)):
        trees = [{name: tensor[part] for name, tensor in tree.items()} for tree in (observation, *others)]
        values.append(evaluate(trees[0], agent_id[part], *trees[1:]))
    return torch.cat(values)


def _valid(chosen: _Chosen, credit: Credit) -> Tensor:
    """[n] bool, acts that count for policy or critic; the others are open."""
    return chosen.take((credit.weight + credit.value_weight).to(chosen.agent_id.device)) > 0


def _acts(chosen: _Chosen, value: Tensor, log_prob: Tensor, credit: Credit) -> Acts:
    """The valid acts of a step key, in the critic's type."""
    like = chosen.take(value)
    advantage, return_, weight, value_weight = (
        chosen.take(part).to(like) for part in (credit.advantage, credit.return_, credit.weight, credit.value_weight)
    )
    acts = Acts(
        *(chosen.observation, chosen.action, chosen.agent_id, advantage, return_, like, weight, value_weight, log_prob),
        earlier=chosen.earlier,
    )
    if chosen.index is None:
        return acts
    valid = _valid(chosen, credit)
    return acts if bool(valid.all()) else acts.select(valid.nonzero().squeeze(1))


def _in_sequences(acts: Acts, chosen: _Chosen, credit: Credit, length: int) -> tuple[Acts, Tensor]:
    """Valid acts as sequences, and to which one each belongs [L * S].

    An act that is not valid has no successor: it is the last of its actor before an episode or the rollout ends. So
    the acts between two starts are consecutive.
    """
    carried = tuple(chosen.segment.state)
    index = torch.arange(len(chosen.agent_id), device=chosen.agent_id.device) if chosen.index is None else chosen.index
    valid = _valid(chosen, credit).nonzero().squeeze(1)
    column, order = (index[valid] % chosen.segment.active.shape[1]).sort(stable=True)  # by actor, then by time
    starts = chosen.take(chosen.segment.is_first)[valid][order]
    starts[:1] = True
    starts[1:] |= column[1:] != column[:-1]
    place = torch.arange(len(order), device=order.device)
    since = place - torch.where(starts, place, 0).cummax(0).values
    first = (since % (length if carried else 1) == 0).nonzero().squeeze(1)  # [S]
    sizes = first.diff(append=first.new_tensor([len(order)]))
    steps = torch.arange(int(sizes.max()) if len(sizes) else 0, device=order.device)[:, None]  # [L, 1]
    grid = order[first + torch.minimum(steps, sizes - 1)]  # [L, S]
    acts = replace(acts, carried=carried).select(grid.flatten(), order[first])
    exists = (steps < sizes).flatten()
    acts.weight, acts.value_weight = acts.weight * exists, acts.value_weight * exists
    return acts, torch.arange(len(first), device=order.device).repeat(len(steps))


def _rows(rollout: Rollout, chosen: dict[StepKey, _Chosen], credit: dict[StepKey, Credit]) -> dict[StepKey, Tensor]:
    """By step key, [n] which filled row each valid act belongs to."""
    filled = rollout.rows.filled.flatten()
    n_envs = rollout.n_envs
    rank = filled.cumsum(0) - 1  # [T * N] -> place among the filled rows
    rows = {}
    for key, part in chosen.items():
        assert part.index is not None
        n_columns = part.segment.active.shape[1]
        time = part.index.div(n_columns, rounding_mode="floor")
        env = (part.index % n_columns).div(rollout.n_slots(key), rounding_mode="floor")
        rows[key] = rank[time * n_envs + env][_valid(part, credit[key])]
    return rows
