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
from maze_pl.modules.algorithm import ModelComposer
from maze_pl.modules.on_policy.credit import VTrace
from maze_pl.modules.on_policy.learning_batch import OnPolicyModule
from maze_pl.modules.on_policy.minibatches import Minibatch, PolicySamples

REWARD_CLIPPINGS = ("none", "abs_one", "soft_asymmetric")


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
        lr: Learning rate of Adam.
        gamma: Discount of one environment step.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the entropy bonus of the policy.
        vtrace_clip_rho_threshold: Maximum rho in the value targets; None for no limit.
        vtrace_clip_pg_rho_threshold: Maximum rho in the policy's advantages; None for no limit.
        reward_clipping: Transformation of the rewards r of `env.step` for learning: `none` keeps
            them, `abs_one` clips them to [-1, 1], and `soft_asymmetric` is 5 * tanh(r / 5), times
            0.3 where negative. The logged rewards are the original ones.
        sequence_length: Length of truncated back-propagation through time, in acts of one actor,
            for recurrent policies. Sequences begin with the state that the actor had.
        networks: Composer that builds policy and critic.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly.
    """

    topic = "ImpalaEvents"

    def __init__(
        self,
        *,
        lr: float = 5e-4,
        gamma: float = 0.98,
        policy_loss_coef: float = 1.0,
        value_loss_coef: float = 0.5,
        entropy_coef: float = 0.01,
        vtrace_clip_rho_threshold: float | None = 1.0,
        vtrace_clip_pg_rho_threshold: float | None = 1.0,
        reward_clipping: Literal["none", "abs_one", "soft_asymmetric"] = "none",
        sequence_length: int = 16,
        networks: ModelComposer | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
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
            max_grad_norm=max_grad_norm,
            lr_schedule=lr_schedule,
            critic_burn_in_epochs=critic_burn_in_epochs,
            capture=capture,
        )
        check_positive(vtrace_clip_rho_threshold=vtrace_clip_rho_threshold)
        check_positive(vtrace_clip_pg_rho_threshold=vtrace_clip_pg_rho_threshold)
        if reward_clipping not in REWARD_CLIPPINGS:
            raise ValueError(f"reward_clipping={reward_clipping!r} must be one of {REWARD_CLIPPINGS}")
        self.reward_clipping = reward_clipping
        self.vtrace_clip_rho_threshold = vtrace_clip_rho_threshold
        self.vtrace_clip_pg_rho_threshold = vtrace_clip_pg_rho_threshold

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a batch of rollouts."""
        method = VTrace(self.vtrace_clip_rho_threshold, self.vtrace_clip_pg_rho_threshold)
        if self.reward_clipping != "none":
            rollout = self._with_clipped_rewards(rollout)
        batch = self.make_learning_batch(rollout, method, with_log_prob=True)
        (whole,) = batch.minibatches(1)
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
        rho = torch.exp(log_prob.detach() - acts.old_log_prob).clamp(0.0, self.vtrace_clip_rho_threshold)
        self.record("rho", acts.weight.dot(rho), step_key, count=acts.share)
        return -log_prob * acts.advantage

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
