"""Soft actor-critic: off-policy learning with an entropy bonus."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic, TorchStateActionCritic
from maze_pl.agents.network_io import refuse_recurrent, torch_dtype
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.checks import check_at_least, check_fraction, check_not_negative, check_positive
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.rows import Tree
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.distributions import ProbabilityDistribution
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution as Maskable
from maze_pl.distributions.probability_distribution import choice_sizes, masked_by_network
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import DistributionOverrides, NetworksOption
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.target_networks import warn_of_rounding
from maze_pl.modules.td_errors import TDErrors
from maze_pl.modules.usable_heads import refuse_exploration_scale, refuse_open_bounds, refuse_unusable_head
from maze_pl.schedules import Coefficient, value_at

POLICY, CRITIC, ENTROPY = range(3)
"""Indices of the optimisers."""


class SoftValue(NamedTuple):
    """Values of states, and the policy there.

    Attributes:
        value: [B] V(s).
        entropies: Head -> [B].
        distributions: Head -> distribution.
    """

    value: Tensor
    entropies: dict[str, Tensor]
    distributions: dict[str, ProbabilityDistribution]


@dataclass(frozen=True)
class EntropySurplus:
    """Mean entropy of each head, minus its target.

    Attributes:
        of_heads: [number of heads].
    """

    of_heads: Tensor
    structure: ClassVar[tuple[object, ...]] = ()

    def tensors(self) -> list[Tensor]:
        """List all tensors."""
        return [self.of_heads]

    def with_tensors(self, tensors: Iterable[Tensor]) -> "EntropySurplus":
        """Return a copy with the next tensor of an iterator."""
        return EntropySurplus(next(iter(tensors)))


class SAC(AlgorithmModule):
    """Soft actor-critic with twin critics, for continuous and discrete heads and any mixture of them.

        V(s)     = min_i E[Q_i(s, a)] + sum over heads of alpha * H(pi(.|s))
        L_critic = sum_i mean((Q_i(s, a) - R - D * V'(s'))^2)
        L_policy = mean(-V(s))
        L_alpha  = log(alpha) * mean(H(pi(.|s)) - target entropy)

    Haarnoja et al. 2018, arXiv:1801.01290, with learned entropy coefficients, arXiv:1812.05905; for
    discrete actions Christodoulou 2019, arXiv:1910.07207. V' is V computed with the target critics.
    Actions of continuous heads are sampled with gradients (reparameterised), and their H is
    -log pi(a|s); means over actions of discrete heads are exact: Q is a sum over choices, where
    each term depends on its choice and on the continuous actions. R and D are the rewards and the
    discount up to the next act of the same actor; where an episode was truncated, D is not 0. With
    n-step returns, R lacks the entropies of the states in between. Each head of each sub-step has
    its own alpha. Losses are summed over sub-steps.

    The minimum is that of whole values, as in clipped double Q-learning, Fujimoto et al. 2018,
    arXiv:1802.09477. With a single discrete choice it is E[min_i Q_i(s, a)], as in Christodoulou
    2019. With several choices this cannot be done choice by choice: only the sum of their terms
    is learned, and constants that move from one term to another would lower the minima of the terms.

    Batches come from a `ReplayDataModule`, which has the options of collecting and sampling.
    Critics come from `SharedStateActionCriticComposer` or `StepStateActionCriticComposer`.

    Args:
        lr: Learning rate, for policy and critic: a number or a schedule.
        gamma: Discount of one environment step; the data module sums rewards by it.
        tau: Soft-update coefficient: fraction by which target critics move towards the critics.
        target_update_interval: Updates between two updates of the target critics.
        entropy_coef: Alpha; its initial value if alpha is tuned.
        entropy_tuning: Learn alpha, so that the entropies approach their targets.
        target_entropy_multiplier: Multiplier of the target entropies. These are minus the number of
            components for a continuous head, whose box counts as [-1, 1] in each component, and
            0.98 times the maximum entropy over the allowed options for a discrete head: those that
            neither a mask of the environment nor the network excludes.
        entropy_coef_lr: Learning rate of log(alpha).
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

    Raises:
        ValueError: The critic is not a state-action critic, a network is recurrent, or the
            distribution of a head is unsuitable.
    """

    batch_type: ClassVar[type] = ReplayBatch
    critic_type: ClassVar[type] = TorchStateActionCritic
    head_distributions: ClassVar[DistributionOverrides] = [
        {
            "action_space": "gymnasium.spaces.Box",
            "distribution": "maze_pl.distributions.SquashedGaussianProbabilityDistribution",
            "exploration": {"type": "state_dependent", "log_std_bounds": [-20.0, 2.0]},
        }
    ]
    topic = "SACEvents"

    def __init__(
        self,
        *,
        lr: Coefficient = 1e-3,
        gamma: float = 0.99,
        tau: Coefficient = 0.005,
        target_update_interval: int = 1,
        entropy_coef: Coefficient = 0.2,
        entropy_tuning: bool = True,
        target_entropy_multiplier: Coefficient = 1.0,
        entropy_coef_lr: Coefficient = 7e-4,
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
        check_fraction(gamma=gamma)
        check_at_least(1, target_update_interval=target_update_interval)
        if entropy_tuning and callable(entropy_coef):
            remedy = "set entropy_tuning=False, or schedule target_entropy_multiplier"
            raise ValueError(f"entropy_coef follows a schedule, but entropy_tuning=True learns it: {remedy}")
        check_entropy_coef = check_positive if entropy_tuning else check_not_negative
        # Set first: the networks may be made in super().__init__, and the coefficients with them.
        self.entropy_tuning = entropy_tuning
        self._first_entropy_coef = value_at("entropy_coef", entropy_coef, 0.0, check_entropy_coef)
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
        self.gamma = gamma
        self.tau = self.coefficient("tau", tau, check_fraction)
        self.target_update_interval = target_update_interval
        self.entropy_coef = self.coefficient("entropy_coef", entropy_coef, check_entropy_coef)
        self.entropy_coef_lr = self.coefficient("entropy_coef_lr", entropy_coef_lr, check_positive)
        self.target_entropy_multiplier = self.coefficient(
            "target_entropy_multiplier", target_entropy_multiplier, check_not_negative
        )
        self.register_buffer("_n_updates", torch.zeros((), dtype=torch.int64))
        self.td_errors = TDErrors()

    @property
    def critic(self) -> TorchStateActionCritic:
        """The state-action critic."""
        return cast(TorchStateActionCritic, self.networks.critic)

    def on_networks_ready(self) -> None:
        """Check the heads, and create the entropy coefficients.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        policy = self.policy
        refuse_exploration_scale(type(self).__name__, policy)
        self._heads: dict[str, int] = {}  # "<step key>/<head>" -> index of its entropy coefficient
        self._n_choices: dict[StepKey, int] = {}  # of the discrete heads of a sub-step
        for key, nets in zip(policy.spec.step_keys, policy.networks, strict=True):
            refuse_recurrent(nets, f"the policy's network of sub-step {key!r}")
            spaces = policy.spec.steps[key].observation_space.spaces.items()
            zeros = {name: torch.zeros((1, *(space.shape or ())), dtype=torch_dtype(space)) for name, space in spaces}
            with evaluation_mode(policy):
                joint = policy.distribution(key, zeros, torch.zeros(1, dtype=torch.int64))
            for head, distribution in joint.distributions.items():
                refuse_unusable_head("SAC", distribution, f"action head {head!r} of sub-step {key!r}")
                self._heads[f"{key}/{head}"] = len(self._heads)
            self._n_choices[key] = sum(len(choice_sizes(part.action_space)) for part in joint.distributions.values())
        start = torch.full((len(self._heads),), self._first_entropy_coef).log()
        self.log_entropy_coef = nn.Parameter(start, requires_grad=self.entropy_tuning)

    def data_requirements(self) -> DataRequirements:
        """Return the discount, by which the data module sums rewards between two acts."""
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        """Create the optimisers of policy, critic and (group `other`) tuned entropy coefficients."""
        groups = self.parameter_groups()
        if [*groups][:2] != ["policy", "critic"]:
            raise ValueError("SAC trains policy and critic: each must have parameters that require a gradient")
        if self.entropy_tuning and not self.log_entropy_coef.requires_grad:
            remedy = "set entropy_tuning=False to keep entropy_coef, or do not freeze it"
            fault = "entropy_tuning=True learns log_entropy_coef, which is frozen"
            raise ValueError(f"{fault}: {remedy}")
        return [self.make_optimizer({name: parameters}) for name, parameters in groups.items()]

    def on_fit_start(self) -> None:
        """Check what matters for learning: bounds of Gaussians, and digits of the weights for target networks.

        Raises:
            ValueError: A Gaussian does not keep to bounds; a run that continues gets a warning.
        """
        super().on_fit_start()
        refuse_open_bounds("SAC", self.policy, has_learned=int(self.get_buffer("_n_updates")) > 0)
        warn_of_rounding(self.critic, self.value_of("tau"))

    def on_coefficients_set(self) -> None:
        """Set the coefficients to `entropy_coef` if they are not tuned, also in a resumed run; refuse it otherwise."""
        super().on_coefficients_set()
        if self.entropy_tuning and self.value_of("entropy_coef") != self._first_entropy_coef:
            raise ValueError("entropy_coef cannot be set while entropy_tuning=True learns it: set entropy_tuning=False")
        if not self.entropy_tuning:
            self.log_entropy_coef.detach().fill_(self.value_of("entropy_coef")).log_()

    def default_learning_rate_of(self, group: str, learning_rate: float) -> float:
        """Return a group's learning rate; that of `other` is `entropy_coef_lr`, which `lr_schedule` decays too."""
        if group != "other":
            return super().default_learning_rate_of(group, learning_rate)
        own = self.value_of("entropy_coef_lr")
        if self.follows_schedule("lr") or self.follows_schedule("entropy_coef_lr"):
            return own
        return own / self.lr * learning_rate

    def learning_rate_option_of(self, group: str) -> str:
        """Return the option of a group's learning rate: for `other`, `entropy_coef_lr`."""
        return "entropy_coef_lr" if group == "other" else super().learning_rate_option_of(group)

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        """Learn from the minibatches of a batch."""
        self.td_errors.begin(batch)
        tau = self.value_of("tau")
        critic = self.critic
        counter = self.get_buffer("_n_updates")
        n_updates = int(counter)  # read once, as reading waits for the device
        for index, acts in enumerate(batch.updates()):
            is_traced = not self.td_errors.are_wanted
            is_first = index == 0
            self.gradient_step(self.critic_loss, acts, optimizer=CRITIC, traced=is_traced, record_norms=is_first)
            if not self.in_critic_burn_in:
                self.gradient_step(self.policy_loss, acts, optimizer=POLICY, record_norms=is_first)
                if self.entropy_tuning:
                    self.gradient_step(self.entropy_coef_loss, self._entropy_surplus(), optimizer=ENTROPY)
            n_updates += 1
            if n_updates % self.target_update_interval == 0:
                critic.update_targets(tau)
        counter.fill_(n_updates)
        self.td_errors.report(batch)

    def critic_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute the squared TD errors of both critics, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            next_value = self._soft_value(key, next_observation, acts.agent_id, target=True).value
            q_value = self.critic.action_value(key, acts.observation, acts.action, agent_id=acts.agent_id)
            error = q_value - torch.addcmul(reward, discount, next_value.detach())
            loss = acts.weighted_mean(error.square().sum(dim=0))
            total = total + loss
            self.record("critic_value", q_value.mean(), key)
            self.record("critic_value_loss", loss, key)
            self.td_errors.keep(key, error.detach().abs().mean(dim=0))
        return total

    def policy_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute minus the value of the policy, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            value, entropies, joint = self._soft_value(key, acts.observation, acts.agent_id)
            loss = -acts.weighted_mean(value)
            total = total + loss
            self.record("policy_loss", loss, key)
            self.record("policy_entropy", torch.stack([*entropies.values()]).sum(dim=0).mean(), key)
            for head, entropy in entropies.items():
                name, target = f"{key}/{head}", self._target_entropy(joint[head])
                surplus = entropy.mean() - target
                log_coef = self.log_entropy_coef.detach()[self._heads[name]]
                self.record("target_entropy", target, name)
                self.record("entropy_surplus", surplus, name)
                self.record("entropy_coef", self.log_entropy_coef.detach().exp()[self._heads[name]], name)
                if self.entropy_tuning:
                    self.record("entropy_coef_loss", log_coef * surplus, name)
        return total

    def entropy_coef_loss(self, minibatch: dict[StepKey, EntropySurplus]) -> Tensor:
        """Compute L_alpha, see the class."""
        (surplus,) = minibatch.values()
        return self.log_entropy_coef.dot(surplus.of_heads)

    def _entropy_surplus(self) -> dict[StepKey, EntropySurplus]:
        """Return the entropies of the last policy loss minus their targets; 0 for heads that did not act."""
        surplus = self.last_recorded("entropy_surplus")
        if len(surplus) < len(self._heads):
            absent: dict[StepKey, Tensor] = dict.fromkeys(self._heads, torch.zeros((), device=self.device))
            surplus = absent | surplus
        of_heads = torch.stack([surplus[name] for name in self._heads])
        # A trace takes a dict by step key; this loss has one entry for all sub-steps.
        return {0: EntropySurplus(of_heads.to(self.log_entropy_coef.dtype))}

    def _soft_value(self, key: StepKey, observation: Tree, agent_id: Tensor, target: bool = False) -> SoftValue:
        """Compute V(s), or V'(s) with the target critics."""
        joint = self.policy.distribution(key, observation, agent_id).distributions
        drawn = {head: part.sample() for head, part in joint.items() if not isinstance(part, Maskable)}
        entropies = {head: -joint[head].log_prob(action) for head, action in drawn.items()}
        q_values = self.critic.q_values(key, observation, drawn, target, agent_id=agent_id)
        probabilities: dict[str, Tensor] = {}
        for head, part in joint.items():
            if isinstance(part, Maskable):
                probabilities[head], log_prob = part.probabilities()
                entropies[head] = -(probabilities[head] * log_prob).sum(dim=-1)
        value = _value_of_lower_critic(q_values, probabilities, self._n_choices[key])
        coefs = self.log_entropy_coef.detach().exp()
        for head, entropy in entropies.items():
            value = value + coefs[self._heads[f"{key}/{head}"]] * entropy
        return SoftValue(value, entropies, joint)

    def _target_entropy(self, head: ProbabilityDistribution) -> Tensor:
        """Target of the mean entropy of a head."""
        if isinstance(head, Maskable):
            even = torch.where(masked_by_network(head.logits), head.logits, 0.0)
            uniform = type(head)(even, head.action_space, mask=head.mask)
            return uniform.entropy().mean() * (0.98 * self.target_entropy_multiplier)
        space: Any = head.action_space
        scale = np.subtract(space.high, space.low, dtype=np.float64) / 2
        log_scale = np.log(np.where(np.isfinite(scale), scale, 1.0))
        multiplier = self.target_entropy_multiplier
        if isinstance(multiplier, Tensor):
            return torch.full((), float(log_scale.sum()), device=self.device) - log_scale.size * multiplier
        return torch.full((), float((log_scale - multiplier).sum()), device=self.device)


def _value_of_lower_critic(q_values: dict[str, Tensor], probabilities: dict[str, Tensor], n_choices: int) -> Tensor:
    """[B] min_i E[Q_i(s, a)] over the policy's discrete choices; E[min_i Q_i(s, a)] for a single one, see the class.

    Args:
        q_values: Discrete head -> [2, B, L] values of its options, or "q_value" -> [2, B, 1] without such heads.
        probabilities: Discrete head -> [B, L] probabilities of its options.
        n_choices: Number of choices of all discrete heads.
    """
    if not probabilities:
        return q_values["q_value"].amin(dim=0).squeeze(-1)
    if n_choices == 1:
        ((head, probability),) = probabilities.items()
        return (probability * q_values[head].amin(dim=0)).sum(dim=-1)
    terms = [(probability * q_values[head]).sum(dim=-1) for head, probability in probabilities.items()]
    return sum(terms[1:], terms[0]).amin(dim=0)
