"""Proximal policy optimisation: several passes over each rollout, held close to the policy that collected it."""

from typing import Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.ranks import mean_over_ranks
from maze_pl.core.rollout import Rollout
from maze_pl.functional import approx_kl, ppo_clip_loss
from maze_pl.functional.shapes import check_fraction
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.minibatches import Acts, Minibatch
from maze_pl.modules.on_policy import actor_critic_loss, experience
from maze_pl.modules.options import check_at_least, check_positive, count_minibatches


class PPO(AlgorithmModule):
    """Proximal policy optimisation with a clipped surrogate objective.

        L = mean(L_clip) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi(s_t)))

    Schulman et al. 2017, arXiv:1707.06347. Departures: advantages are normalised over the whole rollout, not over each
    minibatch; minibatches are sets of rows, so that the acts of one row stay together. Subclasses may override `loss`.

    Args:
        lr: Learning rate of Adam.
        gamma: Discount of one environment step.
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the policy's entropy, which is maximised.
        batch_size: Environment steps of a minibatch on each rank; divides those of a rollout.
        n_optimization_epochs: Passes over each rollout.
        clip_range: How far the ratio of probabilities may move from 1 before its gradient vanishes.
        value_clip_range: How far values may move from those before learning; None does not clip.
        target_kl: No further pass once the mean divergence of a policy from the one that acted exceeded this in a pass;
            None never stops early.
        normalize_advantage: Bring the advantages of a rollout to mean 0 and standard deviation 1.
        sequence_length: Over how many acts of an actor gradients flow back, where the policy carries a state from act
            to act; minibatches then consist of sequences of so many acts, fewer at the ends of episodes and rollouts.
        kwargs: Further options, see `AlgorithmModule`.
    """

    def __init__(
        self,
        *,
        lr: float = 2.5e-4,
        gamma: float = 0.98,
        gae_lambda: float = 1.0,
        policy_loss_coef: float = 1.0,
        value_loss_coef: float = 0.5,
        entropy_coef: float = 2.5e-4,
        batch_size: int = 100,
        n_optimization_epochs: int = 4,
        clip_range: float = 0.2,
        value_clip_range: float | None = None,
        target_kl: float | None = None,
        normalize_advantage: bool = True,
        sequence_length: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr=lr, **kwargs)
        check_fraction(gamma=gamma, gae_lambda=gae_lambda)
        check_at_least(0, policy_loss_coef=policy_loss_coef, value_loss_coef=value_loss_coef, entropy_coef=entropy_coef)
        counts = {"batch_size": batch_size, "n_optimization_epochs": n_optimization_epochs}
        check_at_least(1, **counts, sequence_length=sequence_length)
        check_positive(clip_range=clip_range, value_clip_range=value_clip_range, target_kl=target_kl)
        if target_kl is not None and n_optimization_epochs == 1:
            raise ValueError("target_kl stops between passes over a rollout, but n_optimization_epochs=1 makes one")
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.policy_loss_coef, self.value_loss_coef, self.entropy_coef = policy_loss_coef, value_loss_coef, entropy_coef
        self.batch_size, self.n_optimization_epochs = batch_size, n_optimization_epochs
        self.clip_range, self.value_clip_range, self.target_kl = clip_range, value_clip_range, target_kl
        self.normalize_advantage, self.sequence_length = normalize_advantage, sequence_length

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout."""
        options = {"normalize_advantage": self.normalize_advantage, "with_log_prob": True}
        batch = experience(self, rollout, self.gae_lambda, **options)
        n_minibatches = count_minibatches(self.batch_size, rollout.n_envs, rollout.n_rollout_steps)
        for epoch in range(self.n_optimization_epochs):
            divergences = {step_key: torch.zeros((), device=self.device) for step_key in rollout.segments}
            for index, minibatch in enumerate(batch.minibatches(n_minibatches, self.generator)):
                self.descend(minibatch, even=batch.even, record_norms=epoch == index == 0)
                if self.target_kl is not None:
                    for step_key, divergence in self.last_recorded("policy_kl").items():
                        divergences[step_key] += divergence
            del minibatch  # with it goes the shuffled copy of all observations, before there is another one
            if self.target_kl is not None:
                mean = mean_over_ranks(torch.stack(list(divergences.values())) / n_minibatches)
                if float(mean.max()) > self.target_kl:
                    break

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Loss of a set of acts.

        Args:
            minibatch: The acts by step key; `weight.dot(x)` is the mean of x over them.

        Returns:
            A scalar whose mean over ranks is minimised.
        """
        return actor_critic_loss(self, minibatch, self._policy_losses, self.value_clip_range)

    def _policy_losses(self, step_key: StepKey, acts: Acts, log_prob: Tensor) -> Tensor:
        if self.target_kl is not None:
            divergence = acts.weight.dot(approx_kl(log_prob.detach(), acts.old_log_prob))
            self.record("policy_kl", divergence, step_key, count=acts.share)
        return ppo_clip_loss(log_prob, acts.old_log_prob, acts.advantage, self.clip_range)
