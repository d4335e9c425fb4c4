"""Proximal policy optimisation: several passes over each rollout with a clipped objective."""

from typing import Any, Final, Literal

import torch
from torch import Tensor

from maze_pl.agents import TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_at_least, check_fraction, check_positive
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DeclaresRolloutSize, DeclaresSameStarts
from maze_pl.functional import approx_kl, is_ratio_clipped, ppo_clip_loss
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.on_policy.minibatches import Minibatch, PolicySamples, count_minibatches
from maze_pl.modules.on_policy.on_policy_module import OnPolicyModule
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.schedules import Coefficient
from maze_pl.system.ranks import mean_over_ranks

N_PER_MEASUREMENT: Final = 4
"""The change of the policy is measured after each fourth rollout of an epoch, from the first on."""


class PPO(OnPolicyModule):
    """Proximal policy optimisation with a clipped surrogate objective.

        L = mean(L_clip) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi(s_t)))

    Schulman et al. 2017, arXiv:1707.06347. Departures: advantages are normalised over the whole
    rollout, not over each minibatch; minibatches are sets of rows, so that the acts of one row stay
    together. Subclasses may override `loss`.

    Args:
        lr: Learning rate: a number or a schedule.
        gamma: Discount of one environment step.
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages: a number or a
            schedule.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the entropy bonus of the policy.
        batch_size: Environment steps of a minibatch on each rank; must divide those of a rollout.
        n_optimization_epochs: Passes over each rollout.
        clip_range: Maximum deviation of the probability ratio from 1; beyond it the gradient
            vanishes.
        value_clip_range: Maximum change of a value from before learning; None for no clipping.
        target_kl: Threshold of early stopping: no further pass follows one in which the mean KL
            divergence of a sub-step from the policy that acted exceeds it, over the minibatches in
            which the sub-step acts; None never stops early.
        baseline: What returns are compared with: `critic`, by generalised advantage estimates, or
            `leave_one_out`, the mean of other episodes from the same start. The latter needs
            `n_same_starts` of the data module; the critic learns as before, but has no effect on
            the policy.
        normalize_advantage: Normalise advantages to mean 0 and standard deviation 1 per rollout.
        sequence_length: Length of truncated back-propagation through time, in acts of one actor,
            for recurrent policies. Minibatches then consist of sequences of this many acts, or
            fewer at the ends of episodes and rollouts.
        networks: Composer that builds policy and critic; `auto`, the default, for networks that
            fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
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

    def __init__(
        self,
        *,
        lr: Coefficient = 2.5e-4,
        gamma: float = 0.98,
        gae_lambda: Coefficient = 1.0,
        policy_loss_coef: Coefficient = 1.0,
        value_loss_coef: Coefficient = 0.5,
        entropy_coef: Coefficient = 2.5e-4,
        batch_size: int = 100,
        n_optimization_epochs: int = 4,
        clip_range: Coefficient = 0.2,
        value_clip_range: Coefficient | None = None,
        target_kl: Coefficient | None = None,
        baseline: Literal["critic", "leave_one_out"] = "critic",
        normalize_advantage: bool = True,
        sequence_length: int = 16,
        networks: NetworksOption | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
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
            gamma=gamma,
            policy_loss_coef=policy_loss_coef,
            value_loss_coef=value_loss_coef,
            entropy_coef=entropy_coef,
            sequence_length=sequence_length,
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
        check_at_least(1, batch_size=batch_size, n_optimization_epochs=n_optimization_epochs)
        if target_kl is not None and n_optimization_epochs == 1:
            raise ValueError("target_kl stops between passes over a rollout, but n_optimization_epochs=1 makes one")
        self.gae_lambda = self.coefficient("gae_lambda", gae_lambda, check_fraction)
        self.batch_size = batch_size
        self.n_optimization_epochs = n_optimization_epochs
        self.clip_range = self.coefficient("clip_range", clip_range, check_positive)
        self.value_clip_range = self.optional_coefficient("value_clip_range", value_clip_range, check_positive)
        self.target_kl = self.optional_coefficient("target_kl", target_kl, check_positive)
        if baseline not in ("critic", "leave_one_out"):
            raise ValueError(f"baseline={baseline!r} must be 'critic' or 'leave_one_out'")
        self.baseline = baseline
        self.normalize_advantage = normalize_advantage

    def check_data_module(self, data: object) -> None:
        """Refuse data that does not fit, including rollouts that `batch_size` does not divide."""
        super().check_data_module(data)
        if isinstance(data, DeclaresRolloutSize):
            count_minibatches(self.batch_size, data.env_steps_per_rollout)
        n_same_starts = data.n_same_starts if isinstance(data, DeclaresSameStarts) else 1
        if (n_same_starts > 1) != (self.baseline == "leave_one_out"):
            fault = f"baseline={self.baseline} of the algorithm does not fit n_same_starts={n_same_starts} of the data"
            rule = "leave_one_out compares at least 2 episodes from each start; without it, leave n_same_starts at 1"
            raise ValueError(f"{fault}: {rule}")

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout."""
        batch = self.make_learning_batch(
            rollout,
            self.value_of("gae_lambda"),
            normalize_advantage=self.normalize_advantage,
            with_log_prob=True,
            leave_one_out=self.baseline == "leave_one_out",
        )
        n_minibatches = count_minibatches(self.batch_size, rollout.n_envs * rollout.n_rollout_steps)
        minibatch: Minibatch = {}
        for epoch in range(self.n_optimization_epochs):
            minibatch = {}  # frees its shuffled copy of all observations before the next is made
            divergences: dict[StepKey, Tensor] = {}  # sum and count of each, if there is a limit
            if self.target_kl is not None:
                divergences = {key: torch.zeros(2, device=self.device) for key in rollout.segments}
            for index, minibatch in enumerate(batch.minibatches(n_minibatches, self.generator)):
                is_first = epoch == 0 and index == 0
                self.gradient_step(self.loss, minibatch, even=batch.even, record_norms=is_first)
                if divergences:
                    self._add_divergences(divergences, minibatch)
            if divergences and self._exceeds_target_kl(divergences):
                break
        if not self.in_critic_burn_in and batch_idx % N_PER_MEASUREMENT == 0:
            self._record_change(minibatch)

    def _add_divergences(self, divergences: dict[StepKey, Tensor], minibatch: Minibatch) -> None:
        """Add the divergences that the loss of a minibatch has recorded, and their counts."""
        for step_key, divergence in self.last_recorded("policy_kl").items():
            divergences[step_key][0] += divergence
            divergences[step_key][1] += minibatch[step_key].share

    def _exceeds_target_kl(self, divergences: dict[StepKey, Tensor]) -> bool:
        """True if the mean divergence of a sub-step is above the limit; a collective call.

        Args:
            divergences: Step key -> [2] sum of the divergences over minibatches, and their number.
        """
        total, count = mean_over_ranks(torch.stack(list(divergences.values()))).unbind(1)
        return float((total / count.clamp(min=1.0)).max()) > self.value_of("target_kl")

    @torch.no_grad()
    def _record_change(self, minibatch: Minibatch) -> None:
        """Record how far the updates on a rollout have moved the policy, by the last minibatch.

        Doing so in every update would take 3% of the time of training a small network, and 1% after
        every rollout.
        """
        with evaluation_mode(self.policy):
            for step_key, acts in minibatch.items():
                joint = self.policy.distribution(step_key, acts.observation, acts.agent_id)
                log_prob = joint.log_prob(acts.action)
                divergence = acts.weight.dot(approx_kl(log_prob, acts.old_log_prob))
                n_clipped = acts.weight.dot(is_ratio_clipped(log_prob, acts.old_log_prob, self.clip_range))
                self.record("approx_kl", divergence, step_key, count=acts.share)
                self.record("clip_fraction", n_clipped, step_key, count=acts.share)

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Compute the loss of a set of acts.

        Args:
            minibatch: Acts by step key; `weight.dot(x)` is the mean of x over the acts.

        Returns:
            A scalar; its mean over ranks is minimised.
        """
        return self.actor_critic_loss(minibatch, self._policy_losses, self.value_clip_range)

    def _policy_losses(self, step_key: StepKey, acts: PolicySamples, log_prob: Tensor) -> Tensor:
        if self.target_kl is not None:
            divergence = acts.weight.dot(approx_kl(log_prob.detach(), acts.old_log_prob))
            self.record("policy_kl", divergence, step_key, count=acts.share)
        return ppo_clip_loss(log_prob, acts.old_log_prob, acts.advantage, self.clip_range)
