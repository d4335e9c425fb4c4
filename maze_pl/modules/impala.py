"""IMPALA: learning from rollouts of asynchronous actors, with corrections for the policy lag."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from maze_pl.agents import TorchActorCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_positive
from maze_pl.core.spec import Spec
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.on_policy.credit import VTrace
from maze_pl.modules.on_policy.minibatches import LearningBatch, Minibatch, PolicySamples
from maze_pl.modules.on_policy.on_policy_module import OnPolicyModule
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.schedules import Coefficient

REWARD_CLIPPINGS = ("none", "abs_one", "soft_asymmetric")
_ROUNDING = 1.0 + 1e-5
"""Factor by which an importance weight must exceed its limit to count as clipped, beyond errors of rounding."""


class IMPALA(OnPolicyModule):
    """Importance weighted actor-learner architecture: one gradient step for each batch of rollouts.

        L = mean(-log pi(a_t | s_t) * A_t) + c_v * mean((V(s_t) - vs_t)^2) - c_e * mean(H(pi(s_t)))

    with targets vs and advantages A of V-trace, see `maze_pl.functional.vtrace`. The ratio rho
    divides the probability of an act (with a shared critic, of all acts of a row) under the current
    policy by its probability under the policy that acted. Espeholt et al. 2018, arXiv:1802.01561.
    Departures: Adam instead of RMSProp, means instead of sums.

    Batches come from an `ActorDataModule`. Rollouts without log-probabilities, such as those of a
    `RolloutDataModule`, are assumed to come from the current policy. Subclasses may override
    `loss`.

    Args:
        lr: Learning rate: a number or a schedule.
        gamma: Discount of one environment step.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the entropy bonus of the policy.
        vtrace_clip_rho_threshold: Maximum rho in the value targets: a number, a
            schedule, or None for no limit.
        vtrace_clip_pg_rho_threshold: Maximum rho in the policy's advantages: a
            number, a schedule, or None for no limit.
        reward_clipping: Transformation of the rewards r of `env.step` for learning: `none` keeps
            them, `abs_one` clips them to [-1, 1], and `soft_asymmetric` is 5 * tanh(r / 5), times
            0.3 where negative. The logged rewards are the original ones.
        sequence_length: Length of truncated back-propagation through time, in acts of one actor,
            for recurrent policies. Sequences begin with the state that the actor had.
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

    topic = "ImpalaEvents"

    def __init__(
        self,
        *,
        lr: Coefficient = 5e-4,
        gamma: float = 0.98,
        policy_loss_coef: Coefficient = 1.0,
        value_loss_coef: Coefficient = 0.5,
        entropy_coef: Coefficient = 0.01,
        vtrace_clip_rho_threshold: Coefficient | None = 1.0,
        vtrace_clip_pg_rho_threshold: Coefficient | None = 1.0,
        reward_clipping: Literal["none", "abs_one", "soft_asymmetric"] = "none",
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
        if reward_clipping not in REWARD_CLIPPINGS:
            raise ValueError(f"reward_clipping={reward_clipping!r} must be one of {REWARD_CLIPPINGS}")
        self.reward_clipping = reward_clipping
        self.vtrace_clip_rho_threshold = self.optional_coefficient(
            "vtrace_clip_rho_threshold", vtrace_clip_rho_threshold, check_positive
        )
        self.vtrace_clip_pg_rho_threshold = self.optional_coefficient(
            "vtrace_clip_pg_rho_threshold", vtrace_clip_pg_rho_threshold, check_positive
        )

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a batch of rollouts."""
        method = VTrace(
            self._threshold("vtrace_clip_rho_threshold"),
            self._threshold("vtrace_clip_pg_rho_threshold"),
        )
        if self.reward_clipping != "none":
            rollout = self._with_clipped_rewards(rollout)
        batch = self.make_learning_batch(rollout, method, with_log_prob=True)
        self._record_importance_weights(batch)
        for whole in batch.minibatches(1):  # none if no act counts
            self.gradient_step(self.loss, whole, even=batch.even, record_norms=True)

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Compute the loss of a set of acts.

        Args:
            minibatch: Acts by step key; `weight.dot(x)` is the mean of x over the acts.

        Returns:
            A scalar; its mean over ranks is minimised.
        """
        return self.actor_critic_loss(minibatch, self._policy_losses)

    def _policy_losses(self, step_key: StepKey, acts: PolicySamples, log_prob: Tensor) -> Tensor:
        return -log_prob * acts.advantage

    def _threshold(self, name: str) -> float | None:
        """Return a threshold in the current batch; None for no limit."""
        return None if getattr(self, name) is None else self.value_of(name)

    def _record_importance_weights(self, batch: LearningBatch) -> None:
        """Record the mean importance weight, also clipped, and the shares that rho_bar and c_bar = 1 clip."""
        for step_key, (rho, n_acts) in batch.importance_weight.items():
            limit = self._threshold("vtrace_clip_rho_threshold")
            clipped = rho if limit is None else rho.clamp(max=limit)
            n_clipped = 0 if limit is None else (rho > limit * _ROUNDING).sum()
            self.record("importance_weight", rho.sum(), step_key, count=n_acts)
            self.record("rho", clipped.sum(), step_key, count=n_acts)
            self.record("rho_clip_fraction", n_clipped, step_key, count=n_acts)
            self.record("c_clip_fraction", (rho > _ROUNDING).sum(), step_key, count=n_acts)

    def _with_clipped_rewards(self, rollout: Rollout) -> Rollout:
        """Return the rollout with clipped rewards."""

        def clip(reward: Any) -> Any:
            if self.reward_clipping == "abs_one":
                return reward.clamp(-1.0, 1.0)
            squeezed = 5.0 * torch.tanh(reward / 5.0)
            return torch.where(reward < 0.0, 0.3 * squeezed, squeezed)

        segments = {}
        for key, part in rollout.segments.items():
            own = None if part.actor_reward is None else clip(part.actor_reward)
            segments[key] = replace(part, reward=clip(part.reward), actor_reward=own)
        shape = *rollout.rows.reward.shape, -1
        total: Any = torch.stack([part.reward.view(shape).sum(-1) for part in segments.values()]).sum(0)
        return replace(rollout, rows=replace(rollout.rows, reward=total), segments=segments)
