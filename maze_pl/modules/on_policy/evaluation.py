"""Evaluation of a rollout's acts by critic and policy, and their arrangement for learning.

Networks are evaluated without gradients, batched over the acts of each step key, and in parts where
observations are large.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.act_parts import in_parts, log_prob_in_parts, n_parts
from maze_pl.agents.changed_inputs import refuse_changes, versions_of
from maze_pl.agents.torch_state_critic import name_in_row
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.rows import Segment, Tree
from maze_pl.modules.on_policy.credit import Credit
from maze_pl.modules.on_policy.critic_states import StatesOfRollout
from maze_pl.modules.on_policy.minibatches import PolicySamples


class ExistingActs:
    """Existing acts of a segment: inputs and actions.

    Args:
        segment: Acts of one step key.
        is_full: Every entry of the segment is an act.
        states: States of a critic that does not share the policy state.

    Attributes:
        segment: Acts of one step key.
        index: [n] index of each act into [T * B]; None if all exist.
        observation: Name -> [n, ...], policy state included.
        action: Head -> [n, ...].
        agent_id: [n]
        earlier: Further inputs of delta critics, name -> [n, ...].
        critic_state: Separate state of the critic before each act, name -> [n, ...].
        final_critic_state: Its state at the final observations, name -> [F, ...].
    """

    def __init__(self, segment: Segment, is_full: bool, states: StatesOfRollout) -> None:
        self.segment = segment
        self.index = None if is_full else segment.active.flatten().nonzero().squeeze(1)
        self.observation = {
            name: self.take(tensor) for name, tensor in (segment.observation | segment.policy_state).items()
        }
        self.action = {name: self.take(tensor) for name, tensor in segment.action.items()}
        self.agent_id = self.take(segment.agent_id)
        self.earlier: Tree = {}
        self.critic_state = {name: self.take(tensor) for name, tensor in states.acts.items()}
        self.final_critic_state = states.finals

    def take(self, tensor: Tensor) -> Tensor:
        """[T, B, ...] -> [n, ...]"""
        flat = tensor.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)


def existing_acts(
    rollout: Rollout, critic: StateCritic, states: Mapping[StepKey, StatesOfRollout]
) -> dict[StepKey, ExistingActs]:
    """Return the acts of each step key, with the inputs that the critic needs.

    Args:
        rollout: The collected rollout.
        critic: Evaluates the acts.
        states: States of the critic, for step keys in which it has a separate state.
    """
    acts: dict[StepKey, ExistingActs] = {}
    is_full = rollout.flat or rollout.dense
    for key, segment in rollout.segments.items():
        acts[key] = ExistingActs(segment, is_full, states.get(key, StatesOfRollout()))
    if critic.kind == "delta" and not rollout.flat:
        for key, part in acts.items():
            part.earlier = _earlier_observations(rollout, key, part.index)
    return acts


# ------------------------------------------------------------------------------------------------------------ values


def values_of(
    critic: StateCritic, rollout: Rollout, acts: dict[StepKey, ExistingActs]
) -> tuple[dict[StepKey, Tensor], dict[StepKey, Tensor]]:
    """Return [T, B] values, 0 where not needed, and [F] values of final observations, by step key.

    Critics that share a policy state evaluate each act from the stored one; see `log_ratios`.

    Raises:
        ValueError: The critic changes observations in place.
    """
    versions = {key: versions_of(part.observation.values()) for key, part in acts.items()}
    values = _flat_values(critic, rollout, acts) if rollout.flat else _values_by_step(critic, rollout, acts)
    for key, part in acts.items():
        refuse_changes(part.observation, versions[key], "the critic", key)
    return values


def _values_by_step(
    critic: StateCritic, rollout: Rollout, acts: dict[StepKey, ExistingActs]
) -> tuple[dict[StepKey, Tensor], dict[StepKey, Tensor]]:
    """Return the same, evaluated step key by step key."""
    values: dict[StepKey, Tensor] = {}
    for key, part in acts.items():
        if part.index is None and critic.kind == "shared" and values:  # the first act of a row has its value
            values[key] = torch.zeros_like(next(iter(values.values())))
        else:
            values[key] = _values(critic, key, part)
    return values, {key: _final_values(critic, rollout, key, acts[key]) for key in rollout.finals}


def _values(critic: StateCritic, key: StepKey, acts: ExistingActs) -> Tensor:
    """[T, B] values; 0 where not needed."""
    shape = acts.segment.active.shape
    observation = acts.observation | acts.earlier | acts.critic_state
    index, agent_id = acts.index, acts.agent_id
    if index is None:
        return in_parts(partial(critic.value, key), observation, agent_id).view(shape)
    if critic.kind == "shared":
        first = (acts.take(acts.segment.position) == 0).nonzero().squeeze(1)
        observation = {name: tensor.index_select(0, first) for name, tensor in observation.items()}
        index, agent_id = index[first], agent_id[first]
    value = in_parts(partial(critic.value, key), observation, agent_id)
    return value.new_zeros(shape.numel()).index_copy_(0, index, value).view(shape)


def _final_values(critic: StateCritic, rollout: Rollout, key: StepKey, acts: ExistingActs) -> Tensor:
    """[F] values of the final observations of a step key."""
    final = rollout.finals[key]
    observation = final.observation | final.policy_state | acts.final_critic_state
    if critic.kind == "delta":
        observation |= _earlier_observations(rollout, key, final.row * rollout.n_envs + final.env)
    return in_parts(partial(critic.value, key), observation, final.agent_id)


def _flat_values(
    critic: StateCritic, rollout: Rollout, acts: dict[StepKey, ExistingActs]
) -> tuple[dict[StepKey, Tensor], dict[StepKey, Tensor]]:
    """[T, N] values and [F] final values, evaluated together, if every row is one act."""
    ((key, part),) = acts.items()
    final = rollout.finals[key]
    following = final.observation | final.policy_state | part.final_critic_state
    shape = part.segment.active.shape
    inputs = part.observation | part.critic_state
    if n_parts(inputs) > 1:  # the copy would cost more than evaluating twice
        value = in_parts(partial(critic.value, key), inputs, part.agent_id)
        return {key: value.view(shape)}, {key: critic.value(key, following, final.agent_id)}
    observation = {name: torch.cat([tensor, following[name]]) for name, tensor in inputs.items()}
    value = critic.value(key, observation, torch.cat([part.agent_id, final.agent_id]))
    n_acts = len(part.agent_id)
    return {key: value[:n_acts].view(shape)}, {key: value[n_acts:]}


def _earlier_observations(rollout: Rollout, step_key: StepKey, index: Tensor | None) -> Tree:
    """Name -> [n, ...] observations of earlier sub-steps, one act each, in rows `index` [n]; in all if None."""
    earlier: Tree = {}
    for key, segment in rollout.segments.items():
        if key == step_key:
            break
        for name, tensor in segment.observation.items():
            flat = tensor.flatten(0, 1)
            earlier[name_in_row(key, name)] = flat if index is None else flat.index_select(0, index)
    return earlier


# ------------------------------------------------------------------------------------------------- log-probabilities


def log_prob_of(actor_critic: TorchActorCritic, key: StepKey, acts: ExistingActs) -> Tensor:
    """[n] log-probabilities under the policy that acted, the current one if none were stored."""
    stored = acts.segment.log_prob
    return _current_log_prob(actor_critic, key, acts) if stored is None else acts.take(stored)


def log_ratios(actor_critic: TorchActorCritic, acts: dict[StepKey, ExistingActs]) -> dict[StepKey, Tensor]:
    """[T, B] current minus stored log-probabilities, for step keys that have stored ones.

    The current ones are computed as `TorchPolicy.note_log_probs` computes the stored ones: without
    the autocasting of mixed precision, whose rounding would look like a change of the policy.

    Recurrent policies evaluate each act from the policy state that was stored with it. If their
    weights have changed since, this is an approximation: Espeholt et al. 2018, arXiv:1802.01561,
    compute later states with the current weights, as the loss does for sequences of acts.
    """
    ratios = {}
    for key, part in acts.items():
        stored = part.segment.log_prob
        if stored is not None:
            with torch.autocast(part.agent_id.device.type, enabled=False):
                change = _current_log_prob(actor_critic, key, part) - part.take(stored)
            places = torch.arange(stored.numel(), device=stored.device) if part.index is None else part.index
            ratios[key] = change.new_zeros(stored.numel()).index_copy_(0, places, change).view_as(stored)
    return ratios


def _current_log_prob(actor_critic: TorchActorCritic, key: StepKey, acts: ExistingActs) -> Tensor:
    """[n] log-probabilities under the current policy."""
    return log_prob_in_parts(actor_critic.policy, key, acts.observation, acts.agent_id, acts.action)


# ------------------------------------------------------------------------------------------------------- arrangement


def valid_acts(acts: ExistingActs, credit: Credit) -> Tensor:
    """[n] bool, True for acts that count for policy or critic; the others are open."""
    return acts.take((credit.weight + credit.value_weight).to(acts.agent_id.device)) > 0


def samples_of(acts: ExistingActs, value: Tensor, log_prob: Tensor, credit: Credit) -> PolicySamples:
    """Return the valid acts of a step key, in the data type of the critic; all acts if every entry is one.

    Args:
        acts: Acts of the step key.
        value: [T, B] values before learning.
        log_prob: [n] log-probabilities under the policy that acted.
        credit: Credit of the acts.
    """
    old_value = acts.take(value)
    samples = PolicySamples(
        observation=acts.observation,
        action=acts.action,
        agent_id=acts.agent_id,
        advantage=acts.take(credit.advantage).to(old_value),
        return_=acts.take(credit.return_).to(old_value),
        old_value=old_value,
        weight=acts.take(credit.weight).to(old_value),
        value_weight=acts.take(credit.value_weight).to(old_value),
        old_log_prob=log_prob,
        earlier=acts.earlier,
        critic_state=acts.critic_state,
    )
    if acts.index is None:
        return samples
    valid = valid_acts(acts, credit)
    return samples if bool(valid.all()) else samples.select(valid.nonzero().squeeze(1))


def open_shares(
    acts: dict[StepKey, ExistingActs],
    samples: dict[StepKey, PolicySamples],
    credit: dict[StepKey, Credit],
    *,
    has_weightless: bool,
    of_policy: bool,
) -> dict[StepKey, tuple[Tensor | int, int]]:
    """Step key -> number of open acts, and of all acts.

    Args:
        acts: All acts.
        samples: Valid acts of each step key, or all.
        credit: Credit of the acts.
        has_weightless: Whether open acts may be among the samples if every entry is an act.
        of_policy: Whether acts count as open if they have no weight in the loss of the policy, even if
            the critic learns from them.
    """
    shares: dict[StepKey, tuple[Tensor | int, int]] = {}
    for key, part in acts.items():
        n_acts = len(part.agent_id)
        n_valid: Tensor | int = len(samples[key].weight)
        if of_policy:
            n_valid = (part.take(credit[key].weight.to(part.agent_id.device)) > 0).sum()
        elif part.index is None and has_weightless:
            n_valid = valid_acts(part, credit[key]).sum()
        shares[key] = n_acts - n_valid, n_acts
    return shares


def in_sequences(
    samples: PolicySamples, acts: ExistingActs, credit: Credit, length: int
) -> tuple[PolicySamples, Tensor]:
    """Arrange valid acts in sequences; also return the sequence that each belongs to, [L * S].

    The acts of a sequence are consecutive: another one begins after acts that are not valid.

    Args:
        samples: Valid acts of the step key, or all.
        acts: All acts of the step key.
        credit: Credit of the acts.
        length: Maximum number of acts of a sequence, if policy or critic has a state.
    """
    policy_state_names = tuple(acts.segment.policy_state)
    index = torch.arange(len(acts.agent_id), device=acts.agent_id.device) if acts.index is None else acts.index
    column, order = (index % acts.segment.active.shape[1]).sort(stable=True)  # by actor, then by time
    valid = valid_acts(acts, credit)
    counts = valid[order]
    starts = acts.take(acts.segment.is_first)[order]
    starts[:1] = True
    starts[1:] |= (column[1:] != column[:-1]) | ~counts[:-1]
    order, starts = order[counts], starts[counts]
    if len(samples.weight) < len(valid):  # the others are not among the samples
        order = (valid.cumsum(0) - 1)[order]
    place = torch.arange(len(order), device=order.device)
    since = place - torch.where(starts, place, 0).cummax(0).values
    has_state = policy_state_names or samples.critic_state
    first = (since % (length if has_state else 1) == 0).nonzero().squeeze(1)  # [S]
    sizes = first.diff(append=first.new_tensor([len(order)]))
    steps = torch.arange(int(sizes.max()) if len(sizes) else 0, device=order.device)[:, None]  # [L, 1]
    grid = order[first + torch.minimum(steps, sizes - 1)]  # [L, S]
    arranged = replace(samples, policy_state_names=policy_state_names).select(grid.flatten(), order[first])
    exists = (steps < sizes).flatten()
    arranged.weight = arranged.weight * exists
    arranged.value_weight = arranged.value_weight * exists
    return arranged, torch.arange(len(first), device=order.device).repeat(len(steps))


def rows_of(
    rollout: Rollout, acts: dict[StepKey, ExistingActs], credit: dict[StepKey, Credit]
) -> dict[StepKey, Tensor]:
    """Step key -> [n] index of the filled row that each valid act belongs to."""
    place = rollout.rows.filled.flatten().cumsum(0) - 1  # [T * N] -> place among the filled rows
    rows = {}
    for key, part in acts.items():
        assert part.index is not None
        rows[key] = place[part.index // rollout.n_slots(key)][valid_acts(part, credit[key])]
    return rows
