"""Learning batches of on-policy algorithms: acts of a rollout with advantages and value targets.

Values and log-probabilities are computed once per rollout, batched over the acts of each step key.
For recurrent policies the acts become sequences, and gradients flow back to the first act of a
sequence (truncated back-propagation through time).
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.torch_state_critic import name_in_row
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout, Segment, Tree
from maze_pl.core.policy import evaluation_mode
from maze_pl.functional import value_loss
from maze_pl.modules.on_policy.credit import Credit, Method, VTrace, delta_credit, shared_credit, step_credit
from maze_pl.modules.on_policy.minibatches import LearningBatch, Minibatch, PolicySamples
from maze_pl.system.ranks import sum_over_ranks

MOST_ELEMENTS = 2**23
"""Maximum number of observation elements evaluated at once without gradients: 32 MiB as float32."""


def learning_batch(
    actor_critic: TorchActorCritic,
    rollout: Rollout,
    gamma: float,
    method: Method,
    *,
    normalize_advantage: bool,
    with_log_prob: bool,
    sequence_length: int = 16,
) -> LearningBatch:
    """Evaluate a rollout and assign credit to its acts; a collective call.

    Networks are run in evaluation mode, as they were when they acted.

    Args:
        actor_critic: Policy and critic.
        rollout: The collected rollout.
        gamma: Discount of one unit of environment time.
        method: Credit assignment: lambda of generalised advantage estimates, which trades bias (0)
            for variance (1), or V-trace. V-trace compares the current policy with the
            log-probabilities stored in the rollout; without them, the current policy is assumed to
            have acted.
        normalize_advantage: Normalise advantages to mean 0 and standard deviation 1, for each step
            key over the valid acts of all ranks.
        with_log_prob: Compute log-probabilities too.
        sequence_length: Maximum number of acts of a sequence, for recurrent policies.

    Raises:
        ValueError: The networks have no critic of states.
    """
    critic = actor_critic.critic
    if not isinstance(critic, StateCritic):
        found = "the networks have none" if critic is None else f"that of the networks is a {type(critic).__name__}"
        raise ValueError(f"this algorithm needs a critic of states, but {found}; name one in the composer")
    shared = critic.kind == "shared"
    with evaluation_mode(actor_critic), torch.no_grad():
        chosen = {key: _Chosen(segment, rollout.flat) for key, segment in rollout.segments.items()}
        for key, part in chosen.items() if critic.kind == "delta" else ():
            part.earlier = _earlier(rollout, key, part.index) if part.index is not None else {}
        if rollout.flat:
            values, final_values = _flat_values(critic, rollout, chosen)
        else:
            values = {key: _values(critic, key, part, shared) for key, part in chosen.items()}
            final_values = {key: _final_value(critic, rollout, key) for key in rollout.finals}
        log_probs = {key: _log_prob(actor_critic, key, part, with_log_prob) for key, part in chosen.items()}
        if isinstance(method, VTrace):
            method = replace(method, log_rho=_log_rhos(actor_critic, chosen))
        give_credit = {"shared": shared_credit, "step": step_credit, "delta": delta_credit}
        kind, credited = critic.kind, rollout
        if rollout.flat:  # one act per row: all kinds agree, up to rewards attributed to the actor
            kind, credited = "shared", _with_own_rewards(rollout) if critic.kind == "step" else rollout
        credit = give_credit[kind](credited, values, final_values, gamma, method)
        acts = {key: _acts(part, values[key], log_probs[key], credit[key]) for key, part in chosen.items()}
        if normalize_advantage:
            normalize_advantages(acts)
    n_acts = {key: len(part.agent_id) for key, part in chosen.items()}
    open_share = {key: (n_acts[key] - len(part.weight), n_acts[key]) for key, part in acts.items()}
    if any(segment.policy_state for segment in rollout.segments.values()):
        sequences = {}
        for key, part in chosen.items():
            acts[key], sequences[key] = _in_sequences(acts[key], part, credit[key], sequence_length)
        return LearningBatch(acts, sequences, 0, shared, open_share)
    rows = None if rollout.flat else _rows(rollout, chosen, credit)
    n_rows = rollout.rows.filled.numel() if rollout.flat else int(rollout.rows.filled.sum())
    return LearningBatch(acts, rows, n_rows, shared, open_share)


def make_learning_batch(module: Any, rollout: Rollout, method: Method, **options: Any) -> LearningBatch:
    """Make an algorithm's learning batch by `learning_batch`, and record the share of open acts."""
    if not isinstance(rollout, Rollout):
        remedy = "use a RolloutDataModule or an ActorDataModule"
        raise ValueError(f"{type(module).__name__} learns from rollouts, not from a {type(rollout).__name__}: {remedy}")
    options["sequence_length"] = module.sequence_length
    batch = learning_batch(module.networks, rollout, module.gamma, method, **options)
    for step_key, (n_open, n_acts) in batch.open_share.items():
        module.record("open_acts", n_open, step_key, count=n_acts)
    return batch


def actor_critic_loss(
    module: Any,
    minibatch: Minibatch,
    policy_losses: Callable[[StepKey, PolicySamples, Tensor], Tensor],
    value_clip_range: float | None = None,
) -> Tensor:
    """Compute the loss of policy and critic, summed over step keys k.

        L = sum_k c_p * mean(L_policy) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi_k(s_t)))

    Args:
        module: The algorithm, with `policy_loss_coef`, `value_loss_coef` and `entropy_coef`; it
            records the terms of the loss.
        minibatch: Acts by step key; `weight.dot(x)` is the mean of x over the acts.
        policy_losses: Function from a step key, its acts, and their log-probabilities [n] with
            gradients to [n] losses.
        value_clip_range: Maximum change of a value from before learning; None for no clipping.

    Returns:
        A scalar; its mean over ranks is minimised.
    """
    total = torch.zeros((), device=module.device)
    for step_key, acts in minibatch.items():
        if not module.in_critic_burn_in:
            log_prob, entropies = module.policy.evaluate(step_key, acts.observation, acts.action, acts.agent_id)
            # `dot`, unlike @, is computed in float32 in mixed precision too
            policy_loss = acts.weight.dot(policy_losses(step_key, acts, log_prob))
            entropy = acts.weight.dot(entropies)
            total = total.add(policy_loss, alpha=module.policy_loss_coef).sub(entropy, alpha=module.entropy_coef)
            module.record("policy_loss", policy_loss, step_key, count=acts.share)
            module.record("policy_entropy", entropy, step_key, count=acts.share)
        if acts.value_share:
            value = module.critic.value(step_key, acts.critic_inputs, acts.agent_id)
            error = acts.value_weight.dot(value_loss(value, acts.return_, acts.old_value, value_clip_range))
            total = total.add(error, alpha=module.value_loss_coef)
            module.record("critic_value", acts.value_weight.dot(value.detach()), step_key, count=acts.value_share)
            module.record("critic_value_loss", error, step_key, count=acts.value_share)
    return total


def normalize_advantages(acts: dict[StepKey, PolicySamples]) -> None:
    """Normalise the advantages of each step key to mean 0 and standard deviation 1 over all ranks.

    This is a collective call. The advantage of a step key with a single act on all ranks becomes 0.
    """
    advantages = [part.advantage.double() for part in acts.values()]
    moments = torch.stack([torch.stack([x.new_tensor(len(x)), x.sum(), x.square().sum()]) for x in advantages])
    count, total, square = sum_over_ranks(moments).unbind(1)
    mean = total / count.clamp(min=1.0)
    deviation = (square / count.clamp(min=1.0) - mean.square()).clamp(min=0.0).sqrt()
    for index, part in enumerate(acts.values()):
        part.advantage = ((advantages[index] - mean[index]) / (deviation[index] + 1e-8)).to(part.advantage.dtype)


class _Chosen:
    """Existing acts of a segment: `index` [n] into [T * B] (None: all), inputs and actions."""

    def __init__(self, segment: Segment, flat: bool) -> None:
        self.segment = segment
        self.index = None if flat else segment.active.flatten().nonzero().squeeze(1)
        self.observation = {
            name: self.take(tensor) for name, tensor in (segment.observation | segment.policy_state).items()
        }
        self.action = {name: self.take(tensor) for name, tensor in segment.action.items()}
        self.agent_id = self.take(segment.agent_id)
        self.earlier: Tree = {}

    def take(self, tensor: Tensor) -> Tensor:
        """[T, B, ...] -> [n, ...]"""
        flat = tensor.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)


def _earlier(rollout: Rollout, step_key: StepKey, index: Tensor) -> Tree:
    """Name -> [n, ...] observations of earlier sub-steps, one act each, in rows `index` [n]."""
    before = itertools.takewhile(lambda item: item[0] != step_key, rollout.segments.items())
    return {
        name_in_row(key, name): tensor.flatten(0, 1).index_select(0, index)
        for key, segment in before
        for name, tensor in segment.observation.items()
    }


def _with_own_rewards(rollout: Rollout) -> Rollout:
    """Replace a flat rollout's rewards by those attributed to the actor, if there are any."""
    (segment,) = rollout.segments.values()
    own: Any = segment.actor_reward
    return rollout if own is None else replace(rollout, rows=replace(rollout.rows, reward=own))


def _final_value(critic: StateCritic, rollout: Rollout, key: StepKey) -> Tensor:
    """[F] values of the final observations of a step key."""
    final = rollout.finals[key]
    earlier = _earlier(rollout, key, final.row * rollout.n_envs + final.env) if critic.kind == "delta" else {}
    return _in_parts(partial(critic.value, key), final.observation | final.policy_state | earlier, final.agent_id)


def _values(critic: StateCritic, key: StepKey, chosen: _Chosen, shared: bool) -> Tensor:
    """[T, B] values; 0 where not needed."""
    assert chosen.index is not None
    shape = chosen.segment.active.shape
    index, observation, agent_id = chosen.index, chosen.observation | chosen.earlier, chosen.agent_id
    if shared:
        first = (chosen.take(chosen.segment.position) == 0).nonzero().squeeze(1)
        observation = {name: tensor.index_select(0, first) for name, tensor in observation.items()}
        index, agent_id = index[first], agent_id[first]
    value = _in_parts(partial(critic.value, key), observation, agent_id)
    return value.new_zeros(shape.numel()).index_copy_(0, index, value).view(shape)


def _flat_values(
    critic: StateCritic, rollout: Rollout, chosen: dict[StepKey, _Chosen]
) -> tuple[dict[StepKey, Tensor], dict[StepKey, Tensor]]:
    """[T, N] values and [F] final values, evaluated together, if every row is one act."""
    ((key, part),) = chosen.items()
    final = rollout.finals[key]
    following, shape = final.observation | final.policy_state, part.segment.active.shape
    if _n_parts(part.observation) > 1:  # the copy would cost more than evaluating twice
        value = _in_parts(partial(critic.value, key), part.observation, part.agent_id)
        return {key: value.view(shape)}, {key: critic.value(key, following, final.agent_id)}
    observation = {name: torch.cat([tensor, following[name]]) for name, tensor in part.observation.items()}
    value = critic.value(key, observation, torch.cat([part.agent_id, final.agent_id]))
    n_acts = len(part.agent_id)
    return {key: value[:n_acts].view(shape)}, {key: value[n_acts:]}


def _log_prob(actor_critic: TorchActorCritic, key: StepKey, chosen: _Chosen, wanted: bool) -> Tensor:
    """[n] log-probabilities under the policy that acted; 0 if not `wanted`."""
    if not wanted:
        return torch.zeros_like(chosen.agent_id, dtype=torch.float32)
    old = chosen.segment.log_prob
    return _log_prob_now(actor_critic, key, chosen) if old is None else chosen.take(old)


def _log_rhos(actor_critic: TorchActorCritic, chosen: dict[StepKey, _Chosen]) -> dict[StepKey, Tensor]:
    """[T, B] current minus stored log-probabilities, for step keys that have stored ones."""
    log_rhos = {}
    for key, part in chosen.items():
        if (old := part.segment.log_prob) is not None:
            change = _log_prob_now(actor_critic, key, part) - part.take(old)
            places = torch.arange(old.numel(), device=old.device) if part.index is None else part.index
            log_rhos[key] = change.new_zeros(old.numel()).index_copy_(0, places, change).view_as(old)
    return log_rhos


def _log_prob_now(actor_critic: TorchActorCritic, key: StepKey, chosen: _Chosen) -> Tensor:
    """[n] log-probabilities under the current policy."""

    def evaluate(observation: Tree, agent_id: Tensor, action: Tree) -> Tensor:
        return actor_critic.policy.distribution(key, observation, agent_id).log_prob(action)

    return _in_parts(evaluate, chosen.observation, chosen.agent_id, chosen.action)


def _n_parts(observation: Tree) -> int:
    """Number of parts that acts are evaluated in without gradients."""
    return max(1, -(-sum(tensor.numel() for tensor in observation.values()) // MOST_ELEMENTS))


def _in_parts(evaluate: Callable[..., Tensor], observation: Tree, agent_id: Tensor, *others: Tree) -> Tensor:
    """[n] outputs for acts, in parts if they are large, as networks turn images into floats."""
    if not len(agent_id):
        return torch.zeros(0, device=agent_id.device)
    values, size = list[Tensor](), -(-len(agent_id) // _n_parts(observation))
    for part in (slice(start, start + size) for start in range(0, len(agent_id), size)):
        seen, *rest = ({name: tensor[part] for name, tensor in tree.items()} for tree in (observation, *others))
        values.append(evaluate(seen, agent_id[part], *rest))
    return torch.cat(values) if values[1:] else values[0]


def _valid(chosen: _Chosen, credit: Credit) -> Tensor:
    """[n] bool, True for acts that count for policy or critic; the others are open."""
    return chosen.take((credit.weight + credit.value_weight).to(chosen.agent_id.device)) > 0


def _acts(chosen: _Chosen, value: Tensor, log_prob: Tensor, credit: Credit) -> PolicySamples:
    """Return the valid acts of a step key, in the data type of the critic."""
    like = chosen.take(value)
    advantage, return_, weight, value_weight = (chosen.take(part).to(like) for part in vars(credit).values())
    seen = chosen.observation, chosen.action, chosen.agent_id
    acts = PolicySamples(*seen, advantage, return_, like, weight, value_weight, log_prob, earlier=chosen.earlier)
    if chosen.index is None:
        return acts
    valid = _valid(chosen, credit)
    return acts if bool(valid.all()) else acts.select(valid.nonzero().squeeze(1))


def _in_sequences(acts: PolicySamples, chosen: _Chosen, credit: Credit, length: int) -> tuple[PolicySamples, Tensor]:
    """Arrange valid acts in sequences; also return the sequence that each belongs to, [L * S].

    An invalid act has no successor: it is the last act of its actor before an episode or the
    rollout ends. So the acts between two starts are consecutive.
    """
    carried = tuple(chosen.segment.policy_state)
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
    """Step key -> [n] index of the filled row that each valid act belongs to."""
    rank, rows = rollout.rows.filled.flatten().cumsum(0) - 1, {}  # [T * N] -> place among the filled rows
    for key, part in chosen.items():
        assert part.index is not None
        rows[key] = rank[part.index // rollout.n_slots(key)][_valid(part, credit[key])]
    return rows
