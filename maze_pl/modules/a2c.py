"""Advantage actor-critic: one gradient step for each rollout."""

from typing import Any, Literal

from torch import Tensor

from maze_pl.agents import TorchActorCritic
from maze_pl.core.batches import Rollout
from maze_pl.core.checks import check_fraction
from maze_pl.core.spec import Spec
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.on_policy.minibatches import Minibatch
from maze_pl.modules.on_policy.on_policy_module import OnPolicyModule
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.schedules import Coefficient


class A2C(OnPolicyModule):
    """Synchronous advantage actor-critic.

        L = mean(-log pi(a_t | s_t) * A_t) + c_v * mean((V(s_t) - R_t)^2) - c_e * mean(H(pi(s_t)))

    Mnih et al. 2016, arXiv:1602.01783, without asynchrony, with generalised advantage estimates,
    and with Adam instead of RMSProp. Subclasses may override `loss`.

    Args:
        lr: Learning rate: a number or a schedule.
        gamma: Discount of one environment step.
        gae_lambda: Trade-off between bias (0) and variance (1) of the advantages: a number or a schedule.
        policy_loss_coef: Weight of the policy's loss.
        value_loss_coef: Weight of the critic's loss.
        entropy_coef: Weight of the entropy bonus of the policy.
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
        lr: Coefficient = 5e-4,
        gamma: float = 0.98,
        gae_lambda: Coefficient = 1.0,
        policy_loss_coef: Coefficient = 1.0,
        value_loss_coef: Coefficient = 0.5,
        entropy_coef: Coefficient = 2.5e-4,
        normalize_advantage: bool = False,
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
        self.gae_lambda = self.coefficient("gae_lambda", gae_lambda, check_fraction)
        self.normalize_advantage = normalize_advantage

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout."""
        gae_lambda = self.value_of("gae_lambda")
        batch = self.make_learning_batch(rollout, gae_lambda, normalize_advantage=self.normalize_advantage)
        for whole in batch.minibatches(1):  # none if no act counts
            self.gradient_step(self.loss, whole, even=batch.even, record_norms=True)

    def loss(self, minibatch: Minibatch) -> Tensor:
        """Compute the loss of a set of acts.

        Args:
            minibatch: Acts by step key; `weight.dot(x)` is the mean of x over the acts.

        Returns:
            A scalar; its mean over ranks is minimised.
        """
        return self.actor_critic_loss(minibatch, lambda _, acts, log_prob: -log_prob * acts.advantage)
