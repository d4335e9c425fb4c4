"""Behavioural cloning: supervised learning of the actions of recorded episodes."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pytorch_lightning.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic
from maze_pl.agents.network_io import refuse_recurrent
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import BestEpisodesBatch, TrajectoryBatch, TransitionBatch
from maze_pl.core.checks import check_not_negative
from maze_pl.core.spec import Spec
from maze_pl.distributions import DeterministicProbabilityDistribution
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.optimization.flat_optimizer import gradient_norm
from maze_pl.modules.optimization.network_parts import parts_of
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.usable_heads import refuse_exploration_scale
from maze_pl.schedules import Coefficient
from maze_pl.system.ranks import sum_over_ranks, world_size

_LARGEST = 1e30  # limit of losses and gradients; -log of a masked action is larger


class BC(AlgorithmModule):
    """Behavioural cloning: maximises the likelihood of demonstrated actions.

        L = sum_k mean_i(-log pi_k(a_i | s_i) - c_e * H(pi_k(. | s_i)))

    with a mean over the acts i of a batch, on all ranks, for each sub-step k. The loss of an action
    is a sum over its heads: the cross-entropy of a discrete head, the sum of cross-entropies over
    the choices or bits of a multi-discrete or multi-binary head, and the negative log-density of a
    box. With fixed standard deviations the latter is the squared error. Here they are learned too,
    so that the loss suits all distributions, including bounded ones, and fine-tuning of the policy
    explores as widely as the demonstrations vary. A `DeterministicProbabilityDistribution`, as TD3
    needs it, has the density of normal noise with a standard deviation of half the box: half the squared
    error in halves of the box, plus a constant. Bain and Sammut 1995, "A framework for behavioural
    cloning".

    Batches come from a `TrajectoryDataModule`, which has the batch size and the share of held-out
    episodes. Optimisation is automatic: `Trainer(accumulate_grad_batches=...)` works, and so does
    `Trainer(gradient_clip_val=...)` besides `max_grad_norm`. A critic of the networks is dropped,
    and there is nothing to capture.

    Training is logged under `train_ImitationEvents/...`, measurements on held-out episodes under
    `eval_ImitationEvents/...`. Callbacks may monitor `eval/loss`, the mean negative log-likelihood
    of held-out acts, and `eval/return` if episodes are played. All x axes count acts instead of env
    steps.

    Args:
        lr: Learning rate: a number or a schedule.
        entropy_coef: Weight of the entropy bonus of the policy.
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
        critic_burn_in_epochs: Must be 0, since there is no critic.
        grad_norms_by_part: Also record the gradient norm of each part of the networks, such as body
            and heads, under the statistics `policy_grad_norm` and `critic_grad_norm`.
        capture: Has no effect: Lightning computes the updates.

    Raises:
        ValueError: A network is recurrent, but acts are sampled individually, without earlier acts; a
            head is epsilon-greedy, so that the networks compute values, not probabilities; or episodes
            that the policy is to learn from are played without randomness.
    """

    batch_type: ClassVar[type] = TrajectoryBatch
    topic = "ImitationEvents"
    step_unit: ClassVar[str] = "acts"
    statistics: ClassVar[Mapping[str, str]] = {"policy_loss": "mean of -log pi of the demonstrated actions"}

    def __init__(
        self,
        *,
        lr: Coefficient = 1e-3,
        entropy_coef: Coefficient = 0.0,
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
        self.automatic_optimization = True
        self.entropy_coef = self.coefficient("entropy_coef", entropy_coef, check_not_negative)

    def on_networks_ready(self) -> None:
        """Drop the critic, and refuse recurrent networks and epsilon-greedy heads.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        for step_key, nets in zip(self.spec.step_keys, self.policy.networks, strict=True):
            refuse_recurrent(nets, f"the policy's network of sub-step {step_key!r}")
        refuse_exploration_scale(type(self).__name__, self.policy, accepted=(DeterministicProbabilityDistribution,))
        self.actor_critic = TorchActorCritic(self.policy)

    def on_fit_start(self) -> None:
        """Refuse deterministic heads if the policy imitates the best of the episodes that it samples."""
        super().on_fit_start()
        batch_type = getattr(getattr(self.trainer, "datamodule", None), "batch_type", None)
        if isinstance(batch_type, type) and issubclass(batch_type, BestEpisodesBatch):
            refuse_exploration_scale("self-labelling", self.policy)

    def training_step(self, batch: TrajectoryBatch, batch_idx: int) -> STEP_OUTPUT:
        """Compute the loss of a batch of acts; its mean over ranks is minimised."""
        totals = sum_over_ranks(torch.tensor([len(acts) for acts in batch.acts.values()], device=self.device)).tolist()
        self.env_steps += sum(totals)
        loss = torch.zeros((), device=self.device)
        for (step_key, acts), total in zip(batch.acts.items(), totals, strict=True):
            if len(acts):
                surprise, entropy = self._measure(step_key, acts, "train")
                loss = loss + (surprise - self.entropy_coef * entropy) * (world_size() / total)
            else:  # keeps the parameters in the graph, as other ranks may have acts
                loss = (
                    loss
                    + 0.0 * torch.stack([parameter.sum() for parameter in self.policy.parameters_of(step_key)]).sum()
                )
        self._require_finite("loss", loss.item())
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add held-out acts, or the episodes of an evaluator, to the statistics."""
        if not isinstance(batch, TrajectoryBatch):
            return super().validation_step(batch, batch_idx, dataloader_idx)
        for step_key, acts in batch.acts.items():
            if len(acts):
                surprise, _ = self._measure(step_key, acts, "eval")
                self.record_metric("loss", surprise, count=len(acts), source="eval")

    def _measure(self, step_key: StepKey, acts: TransitionBatch, source: str) -> tuple[Tensor, Tensor]:
        """Return sums over acts of -log pi and of entropies; record both, and how well actions are predicted."""
        joint = self.policy.distribution(step_key, acts.observation, acts.agent_id)
        for part in joint.distributions.values():
            if isinstance(part, DeterministicProbabilityDistribution):
                part.exploration = 1.0  # see the class; without noise there is no density
        log_prob, entropies = joint.log_prob_and_entropy(acts.action)
        surprise, entropy = -log_prob.sum(), entropies.sum()
        self.record("policy_loss", surprise, step_key, count=len(acts), source=source)
        self.record("policy_entropy", entropy, step_key, count=len(acts), source=source)
        if all(isinstance(part, MaskableProbabilityDistribution) for part in joint.distributions.values()):
            self.record("prob_true_act", log_prob.detach().exp().sum(), step_key, count=len(acts), source=source)
        for head, distribution in joint.distributions.items():
            action, chosen = acts.action[head], distribution.deterministic_sample().detach()
            name, near = "discrete_accuracy", chosen == action
            if isinstance(distribution.action_space, spaces.MultiBinary):
                name = "multi_binary_accuracy"
            elif isinstance(distribution.action_space, spaces.Box):
                name, near = "box_mean_abs_deviation", (chosen - action).abs()
            self.record(name, near.sum(), f"{step_key}/{head}", count=near.numel(), source=source)
        return surprise, entropy

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Record the gradient norm and limit it, before Lightning clips."""
        for step_key in self.spec.step_keys:
            norm = float(gradient_norm(self.policy.parameters_of(step_key)))
            self._require_finite("norm of the gradient", norm)
            self.record("policy_grad_norm", norm, step_key)
            if self.grad_norms_by_part:
                for part, parameters in parts_of(self.policy.modules_of(step_key)).items():
                    self.record("policy_grad_norm", gradient_norm(parameters), f"{step_key}/{part}")
        if self.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters(), self.max_grad_norm)

    def _require_finite(self, what: str, number: float) -> None:
        if not abs(number) < _LARGEST:
            raise ValueError(
                f"the {what} is {number:g} in epoch {self.current_epoch}, after {self.env_steps} acts: look for "
                "observations that are not finite or very large and actions that masks forbid, lower "
                f"lr={self.lr:g}, and limit the gradient with max_grad_norm (it is {self.max_grad_norm:g})"
            )

    def record_epoch(self) -> None:
        """Record the norm of the parameters."""
        super().record_epoch()
        for step_key in self.spec.step_keys:
            parameters = torch.cat([parameter.detach().flatten() for parameter in self.policy.parameters_of(step_key)])
            self.record("policy_l2_norm", torch.linalg.vector_norm(parameters), step_key)
