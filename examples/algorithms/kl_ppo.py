"""Proximal policy optimisation with an adaptive KL penalty: a trust region without clipping.

    L    = mean(beta * KL(pi_old || pi) - rho * A) + c_v * mean((V(s) - R)^2) - c_e * mean(H(pi))
    rho  = pi(a | s) / pi_old(a | s)
    beta = 2 beta if the mean divergence after a rollout is above 1.5 d, beta / 2 if it is below d / 1.5

Schulman et al. 2017, arXiv:1707.06347, section 4; d is the target of the divergence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_at_least, check_fraction, check_positive
from maze_pl.functional import approx_kl
from maze_pl.modules import Minibatch, OnPolicyModule, PolicySamples
from maze_pl.system.ranks import mean_over_ranks


class KLPPO(OnPolicyModule):
    """PPO with an adaptive KL penalty; batches come from a `RolloutDataModule`.

    Args:
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages.
        n_minibatches: Minibatches of each rollout.
        n_optimization_epochs: Passes over each rollout.
        target_kl: Target of the mean divergence after a rollout.
        initial_kl_coef: Weight of the penalty at the start.
        options: Options of `OnPolicyModule`, such as `networks`, `lr` and `gamma`.
    """

    topic = "KLPPOEvents"
    kl_coef: Tensor

    def __init__(
        self,
        *,
        gae_lambda: float = 0.95,
        n_minibatches: int = 8,
        n_optimization_epochs: int = 4,
        target_kl: float = 0.01,
        initial_kl_coef: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_fraction(gae_lambda=gae_lambda)
        check_at_least(1, n_minibatches=n_minibatches, n_optimization_epochs=n_optimization_epochs)
        check_positive(target_kl=target_kl, initial_kl_coef=initial_kl_coef)
        self.gae_lambda = gae_lambda
        self.n_minibatches = n_minibatches
        self.n_optimization_epochs = n_optimization_epochs
        self.target_kl = target_kl
        self.register_buffer("kl_coef", torch.tensor(initial_kl_coef))  # saved with checkpoints

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout, then adapt the weight of the penalty."""
        batch = self.make_learning_batch(rollout, self.gae_lambda, normalize_advantage=True, with_log_prob=True)
        totals = torch.zeros(2, device=self.device)  # sum and number of divergences in the last pass
        for _ in range(self.n_optimization_epochs):
            totals = torch.zeros_like(totals)
            for minibatch in batch.minibatches(self.n_minibatches, self.generator):
                self.gradient_step(self.loss, minibatch, even=batch.even)
                for step_key, divergence in self.last_recorded("policy_kl").items():
                    totals[0] += divergence
                    totals[1] += minibatch[step_key].share
        total, number = mean_over_ranks(totals).tolist()
        if number and not self.in_critic_burn_in:
            self.adapt(total / number)

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Loss of policy and critic on a minibatch."""
        return self.actor_critic_loss(minibatch, self.policy_losses)

    def policy_losses(self, step_key: StepKey, samples: PolicySamples, log_prob: Tensor) -> Tensor:
        """[n] losses of the policy, given the log-probabilities [n] of the actions."""
        divergence = approx_kl(log_prob, samples.old_log_prob)
        self.record("policy_kl", samples.weight.dot(divergence), step_key, count=samples.share)
        ratio = torch.exp(log_prob - samples.old_log_prob)
        return self.kl_coef * divergence - ratio * samples.advantage

    def adapt(self, divergence: float) -> None:
        """Double or halve the weight of the penalty if a divergence is far from its target."""
        if divergence > 1.5 * self.target_kl:
            self.kl_coef.mul_(2.0)
        elif divergence < self.target_kl / 1.5:
            self.kl_coef.div_(2.0)
        self.record("kl_coef", float(self.kl_coef))
