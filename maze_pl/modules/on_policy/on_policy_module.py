"""Base of algorithms that learn from rollouts by an actor-critic loss."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_at_least, check_fraction, check_not_negative
from maze_pl.core.spec import Spec
from maze_pl.functional import value_loss
from maze_pl.functional.scaled_sums import add_scaled, subtract_scaled
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.on_policy.credit import Method
from maze_pl.modules.on_policy.critic_states import CriticStates
from maze_pl.modules.on_policy.diagnostics import explained_variances
from maze_pl.modules.on_policy.learning_batch import learning_batch, state_critic_of
from maze_pl.modules.on_policy.minibatches import LearningBatch, Minibatch, PolicySamples
from maze_pl.modules.on_policy.rollout_warnings import warn_if_few_episodes_end, warn_if_rewards_cancel_out
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.usable_heads import refuse_exploration_scale
from maze_pl.schedules import Coefficient

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
        networks: Composer that builds policy and critic; `auto`, the default, for networks that
            fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        lr: Learning rate: a number or a schedule.
        optimizer: `adam`, `sgd` with a momentum of 0.9, or a class of optimisers with its options.
        optimizer_groups: Pattern of parameter names -> options of the optimiser for these
            parameters; the first pattern that matches counts.
        frozen: Patterns of parameter names, such as `policy.*`, that are not trained.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate from `lr` to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        grad_norms_by_part: Also record the gradient norm of each part of the networks, such as body
            and heads, under the statistics `policy_grad_norm` and `critic_grad_norm`.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly.
    """

    batch_type: ClassVar[type] = Rollout
    critic_type: ClassVar[type] = StateCritic

    def __init__(
        self,
        *,
        gamma: float = 0.98,
        policy_loss_coef: Coefficient = 1.0,
        value_loss_coef: Coefficient = 0.5,
        entropy_coef: Coefficient = 2.5e-4,
        sequence_length: int = 16,
        networks: NetworksOption | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        lr: Coefficient = 5e-4,
        optimizer: OptimizerChoice = "adam",
        optimizer_groups: dict[str, ParameterGroup] | None = None,
        frozen: list[str] | None = None,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        grad_norms_by_part: bool = False,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        super().__init__(
            networks=networks,
            spec=spec,
            actor_critic=actor_critic,
            lr=lr,
            optimizer=optimizer,
            optimizer_groups=optimizer_groups,
            frozen=frozen,
            max_grad_norm=max_grad_norm,
            lr_schedule=lr_schedule,
            critic_burn_in_epochs=critic_burn_in_epochs,
            grad_norms_by_part=grad_norms_by_part,
            capture=capture,
        )
        check_fraction(gamma=gamma)
        check_at_least(1, sequence_length=sequence_length)
        self.gamma = gamma
        self.policy_loss_coef = self.coefficient("policy_loss_coef", policy_loss_coef, check_not_negative)
        self.value_loss_coef = self.coefficient("value_loss_coef", value_loss_coef, check_not_negative)
        self.entropy_coef = self.coefficient("entropy_coef", entropy_coef, check_not_negative)
        self.sequence_length = sequence_length
        self._critic_states = CriticStates()
        self._n_rollouts = 0
        self._has_warned_of_ends = False

    def on_networks_ready(self) -> None:
        """Refuse distributions without probabilities to learn from; see `refuse_exploration_scale`."""
        super().on_networks_ready()
        refuse_exploration_scale(type(self).__name__, self.policy)

    def rank_state(self) -> dict[str, Any]:
        """Return the states of a critic that does not share the policy state."""
        return {**super().rank_state(), "critic_states": self._critic_states.state_dict()}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Continue with the states of the critic."""
        super().load_rank_state(state)
        if "critic_states" in state:
            self._critic_states.load_state_dict(state["critic_states"])

    def make_learning_batch(
        self,
        rollout: Rollout,
        method: Method,
        *,
        normalize_advantage: bool = False,
        with_log_prob: bool = False,
        leave_one_out: bool = False,
    ) -> LearningBatch:
        """Evaluate a rollout, assign credit to its acts, and record open acts and the explained variance.

        This is a collective call.

        Args:
            rollout: The collected rollout.
            method: Credit assignment: lambda of generalised advantage estimates, or `VTrace`.
            normalize_advantage: Normalise advantages to mean 0 and standard deviation 1, for each
                step key over the valid acts of all ranks.
            with_log_prob: Compute log-probabilities under the policy that acted.
            leave_one_out: Take advantages over other episodes from the same start.

        Returns:
            The acts with values and advantages, to be divided into minibatches.

        Raises:
            ValueError: The networks have no state critic.
        """
        self._warn_of_rollout(rollout, leave_one_out)
        batch = learning_batch(
            self.networks,
            rollout,
            self.gamma,
            method,
            normalize_advantage=normalize_advantage,
            with_log_prob=with_log_prob,
            sequence_length=self.sequence_length,
            critic_states=self._critic_states,
            leave_one_out=leave_one_out,
        )
        for step_key, (n_open, n_acts) in batch.open_share.items():
            self.record("open_acts", n_open, step_key, count=n_acts)
        for step_key, (explained, total) in explained_variances(batch.acts).items():
            self.record("explained_variance", explained, step_key, count=total)
        return batch

    def _warn_of_rollout(self, rollout: Rollout, leave_one_out: bool) -> None:
        """Warn of rollouts that teach little: in the first one, or in the 1st, 2nd, 4th, ..., as reading waits."""
        self._n_rollouts += 1
        if self._n_rollouts == 1:
            warn_if_rewards_cancel_out(state_critic_of(self.networks).kind, rollout)
        is_power_of_two = self._n_rollouts & (self._n_rollouts - 1) == 0
        if leave_one_out and is_power_of_two and not self._has_warned_of_ends:
            self._has_warned_of_ends = warn_if_few_episodes_end(rollout)

    def actor_critic_loss(
        self,
        minibatch: Minibatch,
        policy_losses: PolicyLosses,
        value_clip_range: float | Tensor | None = None,
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
        critic = state_critic_of(self.networks)
        total = torch.zeros((), device=self.device)
        for step_key, acts in minibatch.items():
            if not self.in_critic_burn_in:
                output = self.policy.compute_policy_output(step_key, acts.observation, acts.agent_id)
                log_prob, entropies = output.distribution.log_prob_and_entropy(acts.action)
                # `dot`, unlike @, is computed in float32 in mixed precision too
                policy_loss = acts.weight.dot(policy_losses(step_key, acts, log_prob))
                entropy = acts.weight.dot(entropies)
                total = add_scaled(total, policy_loss, self.policy_loss_coef)
                total = subtract_scaled(total, entropy, self.entropy_coef)
                self.record("policy_loss", policy_loss, step_key, count=acts.share)
                self.record("policy_entropy", entropy, step_key, count=acts.share)
                if output.auxiliary:
                    losses = self.policy_auxiliary_losses(step_key, acts, output.auxiliary)
                    if losses is not None:
                        auxiliary_loss = acts.weight.dot(losses)
                        total = total + auxiliary_loss
                        self.record("policy_auxiliary_loss", auxiliary_loss, step_key, count=acts.share)
            if acts.has_values:
                critic_output = critic.output(step_key, acts.critic_inputs, acts.agent_id)
                value = critic_output.value
                error = acts.value_weight.dot(value_loss(value, acts.return_, acts.old_value, value_clip_range))
                total = add_scaled(total, error, self.value_loss_coef)
                self.record(
                    "critic_value",
                    acts.value_weight.dot(value.detach()),
                    step_key,
                    count=acts.value_share,
                )
                self.record("critic_value_loss", error, step_key, count=acts.value_share)
                if critic_output.auxiliary:
                    losses = self.critic_auxiliary_losses(step_key, acts, critic_output.auxiliary)
                    if losses is not None:
                        auxiliary_loss = acts.value_weight.dot(losses)
                        total = total + auxiliary_loss
                        self.record("critic_auxiliary_loss", auxiliary_loss, step_key, count=acts.value_share)
        return total

    def policy_auxiliary_losses(
        self, step_key: StepKey, acts: PolicySamples, outputs: dict[str, Tensor]
    ) -> Tensor | None:
        """Compute losses from the auxiliary outputs of the policy's network; a subclass may override it.

        It is called if the network of the sub-step declares auxiliary outputs, not during critic
        burn-in. The mean over the acts is added to the loss and recorded as
        `policy_auxiliary_loss`.

        Args:
            step_key: The sub-step.
            acts: Its acts in the minibatch.
            outputs: Name -> [n, *shape], with gradients.

        Returns:
            [n] losses of the acts, with their coefficient; None if there are none.
        """
        return None

    def critic_auxiliary_losses(
        self, step_key: StepKey, acts: PolicySamples, outputs: dict[str, Tensor]
    ) -> Tensor | None:
        """Compute losses from the auxiliary outputs of the critic's network, as `policy_auxiliary_losses`.

        The mean over the acts whose values the critic learns is added to the loss and recorded as
        `critic_auxiliary_loss`.
        """
        return None
