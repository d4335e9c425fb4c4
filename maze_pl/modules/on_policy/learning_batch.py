"""Learning from rollouts: the learning batch, and the base of algorithms that learn from one.

For recurrent policies the acts of a learning batch become sequences, and gradients flow back to the
first act of a sequence (truncated back-propagation through time).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_at_least, check_fraction
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.spec import Spec
from maze_pl.functional import value_loss
from maze_pl.modules.algorithm import AlgorithmModule, ModelComposer
from maze_pl.modules.on_policy.credit import Method, VTrace, assign_credit
from maze_pl.modules.on_policy.evaluation import (
    existing_acts,
    in_sequences,
    log_prob_of,
    log_ratios,
    rows_of,
    samples_of,
    values_of,
)
from maze_pl.modules.on_policy.minibatches import LearningBatch, Minibatch, PolicySamples
from maze_pl.system.ranks import sum_over_ranks

PolicyLosses = Callable[[StepKey, PolicySamples, Tensor], Tensor]
"""Function from a step key, its acts, and their log-probabilities [n] with gradients to [n] losses."""


class OnPolicyModule(AlgorithmModule):
    """Base of algorithms that learn from rollouts by an actor-critic loss.

    A subclass writes `training_step`, which makes a learning batch and takes gradient steps, and
    `loss`, which names the loss of the policy:

        def training_step(self, rollout, batch_idx):
            batch = self.make_learning_batch(rollout, self.gae_lambda, with_log_prob=True)
            for minibatch in batch.minibatches(4, self.generator):
                self.gradient_step(self.loss, minibatch, even=batch.even)

        def loss(self, minibatch):
            return self.actor_critic_loss(minibatch, self.policy_losses)

    Args:
        gamma: Discount of one environment step.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the entropy bonus of the policy.
        sequence_length: Length of truncated back-propagation through time, in acts of one actor,
            for recurrent policies. Minibatches then consist of sequences of this many acts, or
            fewer at the ends of episodes and rollouts.
        networks: Composer that builds policy and critic.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        lr: Learning rate of Adam.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly.
    """

    batch_type: ClassVar[type] = Rollout

    def __init__(
        self,
        *,
        gamma: float = 0.98,
        policy_loss_coef: float = 1.0,
        value_loss_coef: float = 0.5,
        entropy_coef: float = 2.5e-4,
        sequence_length: int = 16,
        networks: ModelComposer | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        lr: float = 5e-4,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        super().__init__(
            networks=networks,
            spec=spec,
            actor_critic=actor_critic,
            lr=lr,
            max_grad_norm=max_grad_norm,
            lr_schedule=lr_schedule,
            critic_burn_in_epochs=critic_burn_in_epochs,
            capture=capture,
        )
        check_fraction(gamma=gamma)
        check_at_least(
            0,
            policy_loss_coef=policy_loss_coef,
            value_loss_coef=value_loss_coef,
            entropy_coef=entropy_coef,
        )
        check_at_least(1, sequence_length=sequence_length)
        self.gamma = gamma
        self.policy_loss_coef = policy_loss_coef
        self.value_loss_coef = value_loss_coef
        self.entropy_coef = entropy_coef
        self.sequence_length = sequence_length

    def make_learning_batch(
        self,
        rollout: Rollout,
        method: Method,
        *,
        normalize_advantage: bool = False,
        with_log_prob: bool = False,
    ) -> LearningBatch:
        """Evaluate a rollout, assign credit to its acts, and record the share of open acts.

        This is a collective call.

        Args:
            rollout: The collected rollout.
            method: Credit assignment: lambda of generalised advantage estimates, or `VTrace`.
            normalize_advantage: Normalise advantages to mean 0 and standard deviation 1, for each
                step key over the valid acts of all ranks.
            with_log_prob: Compute log-probabilities under the policy that acted.

        Returns:
            The acts with values and advantages, to be divided into minibatches.

        Raises:
            ValueError: The networks have no critic of states.
        """
        batch = learning_batch(
            self.networks,
            rollout,
            self.gamma,
            method,
            normalize_advantage=normalize_advantage,
            with_log_prob=with_log_prob,
            sequence_length=self.sequence_length,
        )
        for step_key, (n_open, n_acts) in batch.open_share.items():
            self.record("open_acts", n_open, step_key, count=n_acts)
        return batch

    def actor_critic_loss(
        self,
        minibatch: Minibatch,
        policy_losses: PolicyLosses,
        value_clip_range: float | None = None,
    ) -> Tensor:
        """Compute the loss of policy and critic, summed over step keys k, and record its terms.

            L = sum_k c_p * mean(L_policy) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi_k(s_t)))

        Args:
            minibatch: Acts by step key; `weight.dot(x)` is the mean of x over the acts.
            policy_losses: Function from a step key, its acts, and their log-probabilities [n] with
                gradients to [n] losses.
            value_clip_range: Maximum change of a value from before learning; None for no clipping.

        Returns:
            A scalar; its mean over ranks is minimised.
        """
        critic = _state_critic(self.networks)
        total = torch.zeros((), device=self.device)
        for step_key, acts in minibatch.items():
            if not self.in_critic_burn_in:
                log_prob, entropies = self.policy.evaluate(step_key, acts.observation, acts.action, acts.agent_id)
                # `dot`, unlike @, is computed in float32 in mixed precision too
                policy_loss = acts.weight.dot(policy_losses(step_key, acts, log_prob))
                entropy = acts.weight.dot(entropies)
                total = total.add(policy_loss, alpha=self.policy_loss_coef).sub(entropy, alpha=self.entropy_coef)
                self.record("policy_loss", policy_loss, step_key, count=acts.share)
                self.record("policy_entropy", entropy, step_key, count=acts.share)
            if acts.value_share:
                value = critic.value(step_key, acts.critic_inputs, acts.agent_id)
                error = acts.value_weight.dot(value_loss(value, acts.return_, acts.old_value, value_clip_range))
                total = total.add(error, alpha=self.value_loss_coef)
                self.record(
                    "critic_value",
                    acts.value_weight.dot(value.detach()),
                    step_key,
                    count=acts.value_share,
                )
                self.record("critic_value_loss", error, step_key, count=acts.value_share)
        return total


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
        with_log_prob: Compute log-probabilities too; otherwise they are 0.
        sequence_length: Maximum number of acts of a sequence, for recurrent policies.

    Raises:
        ValueError: The networks have no critic of states.
    """
    critic = _state_critic(actor_critic)
    samples: dict[StepKey, PolicySamples] = {}
    with evaluation_mode(actor_critic), torch.no_grad():
        acts = existing_acts(rollout, critic)
        values, final_values = values_of(critic, rollout, acts)
        if with_log_prob:
            log_probs = {key: log_prob_of(actor_critic, key, part) for key, part in acts.items()}
        else:
            log_probs = {key: torch.zeros_like(part.agent_id, dtype=torch.float32) for key, part in acts.items()}
        if isinstance(method, VTrace):
            method = replace(method, log_rho=log_ratios(actor_critic, acts))
        credit = assign_credit(critic.kind, rollout, values, final_values, gamma, method)
        for key, part in acts.items():
            samples[key] = samples_of(part, values[key], log_probs[key], credit[key])
        if normalize_advantage:
            normalize_advantages(samples)
    open_share = {}
    for key, part in acts.items():
        n_acts = len(part.agent_id)
        open_share[key] = n_acts - len(samples[key].weight), n_acts
    is_shared = critic.kind == "shared"
    if any(segment.policy_state for segment in rollout.segments.values()):
        sequences: dict[StepKey, Tensor] = {}
        for key, part in acts.items():
            samples[key], sequences[key] = in_sequences(samples[key], part, credit[key], sequence_length)
        return LearningBatch(samples, sequences, 0, is_shared, open_share)
    if rollout.flat:
        return LearningBatch(samples, None, rollout.rows.filled.numel(), is_shared, open_share)
    n_rows = int(rollout.rows.filled.sum())
    return LearningBatch(samples, rows_of(rollout, acts, credit), n_rows, is_shared, open_share)


def _state_critic(actor_critic: TorchActorCritic) -> StateCritic:
    """Return the critic.

    Raises:
        ValueError: The networks have no critic of states.
    """
    critic = actor_critic.critic
    if not isinstance(critic, StateCritic):
        found = "the networks have none" if critic is None else f"that of the networks is a {type(critic).__name__}"
        raise ValueError(f"this algorithm needs a critic of states, but {found}; name one in the composer")
    return critic


def normalize_advantages(acts: dict[StepKey, PolicySamples]) -> None:
    """Normalise the advantages of each step key to mean 0 and standard deviation 1 over all ranks.

    This is a collective call. The advantage of a step key with a single act on all ranks becomes 0.
    """
    advantages = [part.advantage.double() for part in acts.values()]
    moments = [torch.stack([x.new_tensor(len(x)), x.sum(), x.square().sum()]) for x in advantages]
    count, total, square = sum_over_ranks(torch.stack(moments)).unbind(1)
    mean = total / count.clamp(min=1.0)
    deviation = (square / count.clamp(min=1.0) - mean.square()).clamp(min=0.0).sqrt()
    for index, part in enumerate(acts.values()):
        part.advantage = ((advantages[index] - mean[index]) / (deviation[index] + 1e-8)).to(part.advantage.dtype)
