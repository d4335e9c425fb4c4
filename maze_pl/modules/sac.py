"""Soft actor-critic: off-policy learning with an entropy bonus."""

from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic, TorchStateActionCritic
from maze_pl.agents.network_io import refuse_recurrent, torch_dtype
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, TransitionBatch, Tree
from maze_pl.core.checks import check_at_least, check_fraction, check_positive
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.distributions import DiagonalGaussianProbabilityDistribution, ProbabilityDistribution
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution as Maskable
from maze_pl.distributions.probability_distribution import choice_sizes
from maze_pl.modules.algorithm import AlgorithmModule, ModelComposer
from maze_pl.modules.optimization.flat_optimizer import FlatAdam

POLICY, CRITIC, ENTROPY = range(3)
"""Indices of the optimisers."""

Value = tuple[Tensor, dict[str, Tensor], dict[str, ProbabilityDistribution]]
"""[B] values of states, and the policy's entropies [B] and distributions there for each head."""


class SAC(AlgorithmModule):
    """Soft actor-critic with twin critics, for continuous and discrete heads and any mixture of them.

        V(s)     = sum over discrete heads of sum_a p(a|s) (min_i Q_i(s, a) - alpha log p(a|s))
                 + sum over continuous heads of -alpha log pi(a|s)   [+ min_i Q_i(s, a), where there are no others]
        L_critic = sum_i mean((Q_i(s, a) - R - D * V'(s'))^2)
        L_policy = mean(-V(s))
        L_alpha  = log(alpha) * mean(H(pi(.|s)) - target entropy)

    Haarnoja et al. 2018, arXiv:1801.01290, with learned entropy coefficients, arXiv:1812.05905; for
    discrete actions Christodoulou 2019, arXiv:1910.07207. V' is V computed with the target critics.
    Actions of continuous heads are sampled with gradients (reparameterised); means over actions of
    discrete heads are exact: Q is a sum over heads, where each term depends on its head and on the
    continuous actions. R and D are the rewards and the discount up to the next act of the same
    actor; where an episode was truncated, D is not 0. Each head of each sub-step has its own alpha.
    Losses are summed over sub-steps.

    Batches come from a `ReplayDataModule`, which has the options of collecting and sampling.
    Critics come from `SharedStateActionCriticComposer` or `StepStateActionCriticComposer`.

    Args:
        lr: Learning rate of Adam, for policy and critic.
        gamma: Discount of one environment step; the data module sums rewards by it.
        tau: Soft-update coefficient: fraction by which target critics move towards the critics.
        target_update_interval: Updates between two updates of the target critics.
        entropy_coef: Alpha; its initial value if alpha is tuned.
        entropy_tuning: Learn alpha such that the entropies approach their targets.
        target_entropy_multiplier: Multiplier of the target entropies. These are minus the number of
            components for a continuous head, whose box counts as [-1, 1] in each component, and
            0.98 times the maximum entropy over the allowed options for a discrete head.
        entropy_coef_lr: Learning rate of log(alpha).
        networks: Composer that builds policy and critic.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns. Parameters
            that it shares with the policy are not updated either.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly.

    Raises:
        ValueError: The critic is not a state-action critic, a network is recurrent, or the
            distribution of a head is unsuitable.
    """

    batch_type: ClassVar[type] = ReplayBatch
    topic = "SACEvents"

    def __init__(
        self,
        *,
        lr: float = 1e-3,
        gamma: float = 0.99,
        tau: float = 0.005,
        target_update_interval: int = 1,
        entropy_coef: float = 0.2,
        entropy_tuning: bool = True,
        target_entropy_multiplier: float = 1.0,
        entropy_coef_lr: float = 7e-4,
        networks: ModelComposer | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        max_grad_norm: float = 0.0,
        lr_schedule: Literal["constant", "linear"] = "constant",
        critic_burn_in_epochs: int = 0,
        capture: Literal["auto", "off"] = "auto",
    ) -> None:
        check_fraction(gamma=gamma, tau=tau)
        check_at_least(1, target_update_interval=target_update_interval)
        check_at_least(0, entropy_coef=entropy_coef, target_entropy_multiplier=target_entropy_multiplier)
        check_positive(
            entropy_coef_lr=entropy_coef_lr,
            **({"entropy_coef": entropy_coef} if entropy_tuning else {}),
        )
        # Set first: the networks may be made in super().__init__, and the coefficients with them.
        self.entropy_coef, self.entropy_tuning = entropy_coef, entropy_tuning
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
        self.gamma = gamma
        self.tau = tau
        self.target_update_interval = target_update_interval
        self.target_entropy_multiplier = target_entropy_multiplier
        self.entropy_coef_lr = entropy_coef_lr
        self.register_buffer("_n_updates", torch.zeros((), dtype=torch.int64))
        self._errors: dict[StepKey, list[Tensor]] | None = None  # TD errors of a batch

    @property
    def critic(self) -> TorchStateActionCritic:
        """The state-action critic."""
        return cast(TorchStateActionCritic, self.networks.critic)

    def on_networks_ready(self) -> None:
        """Check critic and heads, and create the entropy coefficients.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        policy, critic = self.policy, self.networks.critic
        if not isinstance(critic, TorchStateActionCritic):
            found = "none" if critic is None else type(critic).__name__
            composers = "SharedStateActionCriticComposer or a StepStateActionCriticComposer"
            raise ValueError(f"SAC needs a critic of actions, not {found}: use a {composers}")
        self._heads: dict[str, int] = {}  # "<step key>/<head>" -> index of its entropy coefficient
        for key, nets in zip(policy.spec.step_keys, policy.networks, strict=True):
            refuse_recurrent(nets, f"the policy's network of sub-step {key!r}")
            spaces = policy.spec.steps[key].observation_space.spaces.items()
            zeros = {name: torch.zeros((1, *(space.shape or ())), dtype=torch_dtype(space)) for name, space in spaces}
            with evaluation_mode(policy):
                joint = policy.distribution(key, zeros, torch.zeros(1, dtype=torch.int64))
            for head, distribution in joint.distributions.items():
                _check_head(distribution, f"action head {head!r} of sub-step {key!r}")
                self._heads[f"{key}/{head}"] = len(self._heads)
        start = torch.full((len(self._heads),), float(self.entropy_coef)).log()
        self.log_entropy_coef = nn.Parameter(start, requires_grad=self.entropy_tuning)

    def data_requirements(self) -> DataRequirements:
        """Return the discount, by which the data module sums rewards between two acts."""
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        """Create Adam for policy, critic and (group `other`) tuned entropy coefficients."""
        groups = self.parameter_groups()
        if [*groups][:2] != ["policy", "critic"]:
            raise ValueError("SAC trains policy and critic: each must have parameters that require a gradient")
        return [FlatAdam([{"params": parameters, "name": name}], lr=self.lr) for name, parameters in groups.items()]

    def on_train_start(self) -> None:
        """Set the coefficients to `entropy_coef` if they are not tuned, also in a resumed run."""
        super().on_train_start()
        if not self.entropy_tuning:
            self.log_entropy_coef.detach().fill_(self.entropy_coef).log_()

    def learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return a group's learning rate; that of `other` starts at `entropy_coef_lr`."""
        factor = self.entropy_coef_lr / self.lr if group == "other" else 1.0
        return factor * super().learning_rate_of(group, learning_rate)

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        """Learn from the minibatches of a batch."""
        self._errors = None if batch.reprioritise is None else {}
        for acts in batch.updates():
            # not even if errors are kept: a trace that is run keeps none
            is_even = self._errors is None
            self.gradient_step(self.critic_loss, acts, optimizer=CRITIC, even=is_even, record_norms=True)
            if not self.in_critic_burn_in:
                self.gradient_step(self.policy_loss, acts, optimizer=POLICY, record_norms=True)
                if self.entropy_tuning:
                    self.gradient_step(self._entropy_coef_loss(), optimizer=ENTROPY)
            if int(self.get_buffer("_n_updates").add_(1)) % self.target_update_interval == 0:
                self.critic.update_targets(self.tau)
        if batch.reprioritise is not None and self._errors is not None:
            batch.reprioritise({key: torch.stack(errors) for key, errors in self._errors.items()})

    def critic_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute the squared TD errors of both critics, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            next_value, *_ = self._soft_value(key, next_observation, acts.agent_id, target=True)
            q_value = self.critic.action_value(key, acts.observation, acts.action)
            error = q_value - torch.addcmul(reward, discount, next_value.detach())
            squares = error.square().sum(dim=0)
            loss = (squares if acts.weight is None else acts.weight * squares).mean()
            total = total + loss
            self.record("critic_value", q_value.mean(), key)
            self.record("critic_value_loss", loss, key)
            if self._errors is not None:
                self._errors.setdefault(key, []).append(error.detach().abs().mean(dim=0))
        return total

    def policy_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute minus the value of the policy, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            value, entropies, joint = self._soft_value(key, acts.observation, acts.agent_id)
            loss = -(value if acts.weight is None else acts.weight * value).mean()
            total = total + loss
            self.record("policy_loss", loss, key)
            self.record("policy_entropy", torch.stack([*entropies.values()]).sum(dim=0).mean(), key)
            for head, entropy in entropies.items():
                name, target = f"{key}/{head}", self._target_entropy(joint[head])
                surplus = entropy.mean() - target
                log_coef = self.log_entropy_coef.detach()[self._heads[name]]
                self.record("target_entropy", target, name)
                self.record("entropy_surplus", surplus, name)
                self.record("entropy_coef", log_coef.exp(), name)
                if self.entropy_tuning:
                    self.record("entropy_coef_loss", log_coef * surplus, name)
        return total

    def _entropy_coef_loss(self) -> Tensor:
        """Compute L_alpha, see the class, from entropies of the last policy loss, of heads that acted."""
        surplus, absent = self.last_recorded("entropy_surplus"), torch.zeros((), device=self.device)
        return self.log_entropy_coef.dot(torch.stack([surplus.get(name, absent) for name in self._heads]))

    def _soft_value(self, key: StepKey, observation: Tree, agent_id: Tensor, target: bool = False) -> Value:
        """Compute V(s), or V'(s) with the target critics."""
        joint = self.policy.distribution(key, observation, agent_id).distributions
        terms: list[Tensor] = []
        drawn = {head: part.sample() for head, part in joint.items() if not isinstance(part, Maskable)}
        entropies = {head: -joint[head].log_prob(action) for head, action in drawn.items()}
        smaller = {name: q.amin(dim=0) for name, q in self.critic.q_values(key, observation, drawn, target).items()}
        for head, part in joint.items():
            if isinstance(part, Maskable):
                probability, log_prob = part.probabilities()
                entropies[head] = -(probability * log_prob).sum(dim=-1)
                terms.append((probability * smaller[head]).sum(dim=-1))
        coefs = self.log_entropy_coef.detach().exp()
        terms = terms or [smaller["q_value"].squeeze(-1)]
        terms += [coefs[self._heads[f"{key}/{head}"]] * entropy for head, entropy in entropies.items()]
        return sum(terms[1:], terms[0]), entropies, joint

    def _target_entropy(self, head: ProbabilityDistribution) -> Tensor:
        """Target of the mean entropy of a head."""
        if isinstance(head, Maskable):
            uniform = type(head)(torch.zeros_like(head.logits), head.action_space, mask=head.mask)
            return uniform.entropy().mean() * (0.98 * self.target_entropy_multiplier)
        space: Any = head.action_space
        scale = np.subtract(space.high, space.low, dtype=np.float64) / 2
        of_each = np.log(np.where(np.isfinite(scale), scale, 1.0)) - self.target_entropy_multiplier
        return torch.full((), float(of_each.sum()), device=self.device)


def _check_head(head: ProbabilityDistribution, where: str) -> None:
    """Refuse distributions that SAC cannot use.

    It needs the probabilities of options, or differentiable samples that respect bounds.
    """
    space = head.action_space
    remedy = "SquashedGaussianProbabilityDistribution or BetaProbabilityDistribution"
    if isinstance(head, Maskable):
        return
    if choice_sizes(space):
        fault = "has no `probabilities` of its options"
        remedy = "one derived from those of maze_pl.distributions"
    elif isinstance(head, DiagonalGaussianProbabilityDistribution) and space.is_bounded():  # type: ignore[attr-defined]
        fault = f"does not keep to the bounds of {space}"
    elif not head.sample().requires_grad:
        fault = "gives samples without a gradient"
    else:
        return
    name = type(head).__name__
    raise ValueError(f"{where}: {name} {fault}, as SAC needs; name {remedy} in distribution_mapper_config")
