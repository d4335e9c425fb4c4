"""The learning batch of a rollout: its acts with values and advantages.

Three steps: the networks evaluate the acts (`evaluation`), credit is assigned to them (`credit`), and
they are arranged in rows or, for recurrent networks, in sequences. Gradients flow back to the first
act of a sequence (truncated back-propagation through time).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import evaluation_mode
from maze_pl.modules.on_policy.advantages import normalize_advantages
from maze_pl.modules.on_policy.credit import Credits, Method, VTrace, assign_credit, importance_of_acts
from maze_pl.modules.on_policy.critic_states import CriticStates, StatesOfRollout
from maze_pl.modules.on_policy.evaluation import (
    ExistingActs,
    existing_acts,
    in_sequences,
    log_prob_of,
    log_ratios,
    open_shares,
    rows_of,
    samples_of,
    values_of,
)
from maze_pl.modules.on_policy.leave_one_out import with_leave_one_out_baseline
from maze_pl.modules.on_policy.minibatches import LearningBatch, PolicySamples


class _Arranged(NamedTuple):
    """Acts in the units that minibatches consist of; attributes as in `LearningBatch`."""

    acts: dict[StepKey, PolicySamples]
    row: dict[StepKey, Tensor] | None
    n_rows: int


def learning_batch(
    actor_critic: TorchActorCritic,
    rollout: Rollout,
    gamma: float,
    method: Method,
    *,
    normalize_advantage: bool,
    with_log_prob: bool,
    sequence_length: int = 16,
    critic_states: CriticStates | None = None,
    leave_one_out: bool = False,
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
        normalize_advantage: Normalise advantages of each step key over the valid acts of all ranks.
        with_log_prob: Compute log-probabilities too; otherwise they are 0.
        sequence_length: Maximum number of acts of a sequence, for recurrent policies and critics.
        critic_states: States, after the previous rollout, of a critic that does not share the
            policy state; they are advanced. None starts from zeros.
        leave_one_out: Take advantages over other episodes from the same start.

    Raises:
        ValueError: The networks have no state critic.
    """
    critic = state_critic_of(actor_critic)
    # Where every entry is an act, open acts stay among the samples, with weight 0.
    has_open_acts = rollout.dense and not rollout.flat and critic.kind == "step"
    with evaluation_mode(actor_critic), torch.no_grad():
        states: dict[StepKey, StatesOfRollout] = {}
        if actor_critic.critic_state_shapes:
            states = (critic_states or CriticStates()).advance(actor_critic, rollout)
        acts = existing_acts(rollout, critic, states)
        values, final_values = values_of(critic, rollout, acts)
        log_probs = _log_probs(actor_critic, acts, with_log_prob)
        if isinstance(method, VTrace):
            method = replace(method, log_rho=log_ratios(actor_critic, acts))
        credit = assign_credit(critic.kind, rollout, values, final_values, gamma, method)
        if leave_one_out:
            credit = with_leave_one_out_baseline(credit, rollout, gamma, by_actor=critic.kind == "step")
        samples = {key: samples_of(part, values[key], log_probs[key], credit[key]) for key, part in acts.items()}
        if normalize_advantage:
            normalize_advantages(samples, weighted=leave_one_out or has_open_acts)
    open_share = open_shares(acts, samples, credit, has_weightless=has_open_acts, of_policy=leave_one_out)
    is_recurrent = bool(states) or any(segment.policy_state for segment in rollout.segments.values())
    if is_recurrent:
        arranged = _arranged_in_sequences(acts, samples, credit, sequence_length)
    else:
        arranged = _arranged_in_rows(rollout, acts, samples, credit, has_weights=leave_one_out)
    return LearningBatch(
        acts=arranged.acts,
        row=arranged.row,
        n_rows=arranged.n_rows,
        shared=critic.kind == "shared",
        open_share=open_share,
        importance_weight=importance_of_acts(critic.kind, rollout, method, credit),
        has_open_acts=has_open_acts and not is_recurrent,
    )


def _log_probs(
    actor_critic: TorchActorCritic, acts: Mapping[StepKey, ExistingActs], are_wanted: bool
) -> dict[StepKey, Tensor]:
    """Step key -> [n] log-probabilities under the policy that acted; zeros if they are not wanted."""
    if are_wanted:
        return {key: log_prob_of(actor_critic, key, part) for key, part in acts.items()}
    return {key: torch.zeros_like(part.agent_id, dtype=torch.float32) for key, part in acts.items()}


def _arranged_in_sequences(
    acts: Mapping[StepKey, ExistingActs], samples: Mapping[StepKey, PolicySamples], credit: Credits, length: int
) -> _Arranged:
    """Arrange acts in sequences of at most `length` acts of one actor; see `in_sequences`."""
    arranged: dict[StepKey, PolicySamples] = {}
    sequences: dict[StepKey, Tensor] = {}
    for key, part in acts.items():
        arranged[key], sequences[key] = in_sequences(samples[key], part, credit[key], length)
    return _Arranged(arranged, sequences, n_rows=0)


def _arranged_in_rows(
    rollout: Rollout,
    acts: dict[StepKey, ExistingActs],
    samples: dict[StepKey, PolicySamples],
    credit: Credits,
    *,
    has_weights: bool,
) -> _Arranged:
    """Note the row of each act.

    Args:
        rollout: The collected rollout.
        acts: All acts.
        samples: Valid acts of each step key.
        credit: Credit of the acts.
        has_weights: Whether acts may have weight 0 in the loss of the policy, so that minibatches must
            count them one by one.
    """
    if not (rollout.flat or rollout.dense):
        return _Arranged(samples, rows_of(rollout, acts, credit), int(rollout.rows.filled.sum()))
    n_rows = rollout.rows.filled.numel()
    rows: dict[StepKey, Tensor] | None = None  # act i belongs to row i
    if has_weights:
        rows = {key: torch.arange(n_rows, device=part.weight.device) for key, part in samples.items()}
    return _Arranged(samples, rows, n_rows)


def state_critic_of(actor_critic: TorchActorCritic) -> StateCritic:
    """Return the state critic of some networks.

    Args:
        actor_critic: Policy and critic.

    Raises:
        ValueError: The networks have no state critic.
    """
    critic = actor_critic.critic
    if not isinstance(critic, StateCritic):
        found = "the networks have none" if critic is None else f"that of the networks is a {type(critic).__name__}"
        raise ValueError(f"this algorithm needs a state critic, but {found}; name one in the composer")
    return critic
