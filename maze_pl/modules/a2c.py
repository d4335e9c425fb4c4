"""Advantage actor-critic: one gradient step for each rollout."""

from typing import Any

from torch import Tensor

from maze_pl.core.rollout import Rollout
from maze_pl.functional.shapes import check_fraction
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.minibatches import Minibatch
from maze_pl.modules.on_policy import actor_critic_loss, experience
from maze_pl.modules.options import check_at_least


class A2C(AlgorithmModule):
    """Synchronous advantage actor-critic.

        L = mean(-log pi(a_t | s_t) * A_t) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi(s_t)))

    Mnih et al. 2016, arXiv:1602.01783, without asynchrony and with generalised advantage estimates. Adam takes the
    place of RMSProp. Subclasses may override `loss`.

    Args:
        lr: Learning rate of Adam.
        gamma: Discount of one environment step.
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the policy's entropy, which is maximised.
        normalize_advantage: Bring the advantages of a rollout to mean 0 and standard deviation 1.
        sequence_length: Over how many acts of an actor gradients flow back, where the policy carries a state from act
            to act; minibatches then consist of sequences of so many acts, fewer at the ends of episodes and rollouts.
        kwargs: Further options, see `AlgorithmModule`.
    """

    def __init__(
        self,
        *,
        lr: float = 5e-4,
        gamma: float = 0.98,
        gae_lambda: float = 1.0,
        policy_loss_coef: float = 1.0,
        value_loss_coef: float = 0.5,
        entropy_coef: float = 2.5e-4,
        normalize_advantage: bool = False,
        sequence_length: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr=lr, **kwargs)
        check_fraction(gamma=gamma, gae_lambda=gae_lambda)
        check_at_least(0, policy_loss_coef=policy_loss_coef, value_loss_coef=value_loss_coef, entropy_coef=entropy_coef)
        check_at_least(1, sequence_length=sequence_length)
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.policy_loss_coef, self.value_loss_coef, self.entropy_coef = policy_loss_coef, value_loss_coef, entropy_coef
        self.normalize_advantage, self.sequence_length = normalize_advantage, sequence_length

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout."""
        options = {"normalize_advantage": self.normalize_advantage, "with_log_prob": False}
        batch = experience(self, rollout, self.gae_lambda, **options)
        (whole,) = batch.minibatches(1)
        self.descend(whole, even=batch.even, record_norms=True)

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Loss of a set of acts.

        Args:
            minibatch: The acts by step key; `weight.dot(x)` is the mean of x over them.

        Returns:
            A scalar whose mean over ranks is minimised.
        """
        return actor_critic_loss(self, minibatch, lambda _, acts, log_prob: -log_prob * acts.advantage)
