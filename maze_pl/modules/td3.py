"""Twin delayed deep deterministic policy gradient: off-policy learning of a deterministic policy."""

from typing import Any, ClassVar, Literal, cast

import torch
from gymnasium.spaces import Box
from torch import Tensor
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic, TorchStateActionCritic
from maze_pl.agents.network_io import refuse_recurrent
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.checks import check_at_least, check_fraction, check_not_negative
from maze_pl.core.rows import Tree
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.distributions import DeterministicProbabilityDistribution
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import DistributionOverrides, NetworksOption, as_spec
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.target_networks import soft_update, target_copy, warn_of_rounding
from maze_pl.modules.td_errors import TDErrors
from maze_pl.schedules import Coefficient, value_at

POLICY, CRITIC = range(2)
"""Indices of the optimisers."""


class TD3(AlgorithmModule):
    """Twin delayed DDPG, for continuous heads within bounds.

        a'       = clip(mu'(s') + clip(noise, -c, c))
        y        = R + D * min_i Q_i'(s', a')
        L_critic = sum_i mean((Q_i(s, a) - y)^2)
        L_policy = -mean(Q_1(s, mu(s)))

    Fujimoto et al. 2018, arXiv:1802.09477. The policy mu and all target networks (') are updated
    after every `policy_delay` updates of the critics. R and D are the rewards and the discount up
    to the next act of the same actor; where an episode was truncated, D is not 0. Losses are
    summed over sub-steps; a Q-value depends on all heads of its sub-step.

    Scales of noise are in halves of the box: 0.1 is a tenth of the way from the centre to a bound.

    Batches come from a `ReplayDataModule`, which has the options of collecting and sampling.
    Critics come from `SharedStateActionCriticComposer` or `StepStateActionCriticComposer`, and the
    networks' `distribution_mapper_config` must name `DeterministicProbabilityDistribution`.

    Args:
        lr: Learning rate, for policy and critic: a number or a schedule.
        gamma: Discount of one environment step; the data module sums rewards by it.
        tau: Fraction by which the target networks move towards the networks in each update of them:
            a number or a schedule.
        policy_delay: Updates of the critics for one update of policy and target networks.
        exploration_noise: Scale of the normal noise that is added to actions while collecting: a
            number or a schedule.
        target_noise: Scale of the normal noise that is added to target actions: a number or a
            schedule.
        target_noise_clip: Largest absolute value of that noise: a number or a schedule.
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
            possible and yields the same numbers; `off` runs every update eagerly. With priorities
            updates of the critics are eager.

    Raises:
        ValueError: A number is out of range, the critic is not a state-action critic, a network is
            recurrent, or a head has another space or distribution.
    """

    batch_type: ClassVar[type] = ReplayBatch
    critic_type: ClassVar[type] = TorchStateActionCritic
    head_distributions: ClassVar[DistributionOverrides] = [
        {
            "action_space": "gymnasium.spaces.Box",
            "distribution": "maze_pl.distributions.DeterministicProbabilityDistribution",
        }
    ]
    topic = "TD3Events"
    n_updates: Tensor

    def __init__(
        self,
        *,
        lr: Coefficient = 1e-3,
        gamma: float = 0.99,
        tau: Coefficient = 0.005,
        policy_delay: int = 2,
        exploration_noise: Coefficient = 0.1,
        target_noise: Coefficient = 0.2,
        target_noise_clip: Coefficient = 0.5,
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
        check_at_least(1, policy_delay=policy_delay)
        if spec is not None:
            _refuse_unsuitable_spaces(as_spec(spec))
        # Set first: the networks may be made in super().__init__, which reads it.
        self._first_noise = value_at("exploration_noise", exploration_noise, 0.0, check_not_negative)
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
        self.policy_delay = policy_delay
        self.exploration_noise = self.coefficient("exploration_noise", exploration_noise, check_not_negative)
        self.target_noise = self.coefficient("target_noise", target_noise, check_not_negative)
        self.target_noise_clip = self.coefficient("target_noise_clip", target_noise_clip, check_not_negative)
        self.register_buffer("n_updates", torch.zeros((), dtype=torch.int64))
        self.td_errors = TDErrors()

    @property
    def critic(self) -> TorchStateActionCritic:
        """The twin critics, which have target networks."""
        return cast(TorchStateActionCritic, self.networks.critic)

    def on_networks_ready(self) -> None:
        """Check networks and heads, prepare exploration, and make the target network of the policy.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        policy = self.policy
        _refuse_unsuitable_spaces(policy.spec)
        for key, networks in zip(policy.spec.step_keys, policy.networks, strict=True):
            refuse_recurrent(networks, f"the policy's network of sub-step {key!r}")
            for head, distribution in policy.distribution_classes(key).items():
                where = f"action head {head!r} of sub-step {key!r} has"
                if not issubclass(distribution, DeterministicProbabilityDistribution):
                    remedy = "name DeterministicProbabilityDistribution in distribution_mapper_config"
                    fault = "but TD3 needs deterministic actions of bounded boxes"
                    raise ValueError(f"{where} a {distribution.__name__}, {fault}: {remedy}")
        policy.set_exploration(self._first_noise)
        self.target_policy = target_copy(policy)

    def on_fit_start(self) -> None:
        """Warn if the weights have too few digits for target networks to follow."""
        super().on_fit_start()
        warn_of_rounding(self.target_policy, self.value_of("tau"))

    def on_coefficients_set(self) -> None:
        """Let the policy explore with the noise of the next batch."""
        super().on_coefficients_set()
        self.policy.set_exploration(self.value_of("exploration_noise"))

    def data_requirements(self) -> DataRequirements:
        """Return the discount, by which the data module sums rewards between two acts."""
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        """Create the optimisers of the policy and of the critics."""
        groups = self.parameter_groups()
        if [*groups][:2] != ["policy", "critic"]:
            raise ValueError("TD3 trains policy and critic: each must have parameters that require a gradient")
        return [self.make_optimizer({name: groups[name]}) for name in ("policy", "critic")]

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        """Learn from the minibatches of a batch."""
        self.td_errors.begin(batch)
        tau = self.value_of("tau")
        n_updates = int(self.n_updates)  # read once, as reading waits for the device
        for index, acts in enumerate(batch.updates()):
            is_traced = not self.td_errors.are_wanted
            self.gradient_step(self.critic_loss, acts, optimizer=CRITIC, traced=is_traced, record_norms=index == 0)
            n_updates += 1
            if n_updates % self.policy_delay == 0:
                if not self.in_critic_burn_in:
                    is_first = index < self.policy_delay
                    self.gradient_step(self.policy_loss, acts, optimizer=POLICY, record_norms=is_first)
                self.critic.update_targets(tau)
                soft_update(self.target_policy, self.policy, tau)
        self.n_updates.fill_(n_updates)
        self.td_errors.report(batch)

    def critic_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute the squared TD errors of both critics, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            with torch.no_grad():
                next_action = self.target_action(key, next_observation, acts.agent_id)
                next_values = self.critic.action_value(
                    key, next_observation, next_action, target=True, agent_id=acts.agent_id
                )
                target = torch.addcmul(reward, discount, next_values.amin(dim=0))
            # [2, B]
            q_value = self.critic.action_value(key, acts.observation, acts.action, agent_id=acts.agent_id)
            error = q_value - target
            loss = acts.weighted_mean(error.square().sum(dim=0))
            total = total + loss
            self.record("critic_value", q_value.mean(), key)
            self.record("critic_value_loss", loss, key)
            self.td_errors.keep(key, error.detach().abs().mean(dim=0))
        return total

    def target_action(self, key: StepKey, observation: Tree, agent_id: Tensor) -> dict[str, Tensor]:
        """Compute actions of the target policy with clipped noise (target policy smoothing).

        Args:
            key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            agent_id: [B] ids of the agents.

        Returns:
            Head -> [B, ...]
        """
        joint = self.target_policy.distribution(key, observation, agent_id).distributions
        heads = cast(dict[str, DeterministicProbabilityDistribution], joint)
        return {head: part.perturbed(self.target_noise, self.target_noise_clip) for head, part in heads.items()}

    def policy_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute minus the first critic's value of the policy's actions, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            action = self.policy.distribution(key, acts.observation, acts.agent_id).deterministic_sample()
            value = self.critic.action_value(key, acts.observation, action, only_first=True, agent_id=acts.agent_id)[0]
            loss = -acts.weighted_mean(value)
            total = total + loss
            self.record("policy_loss", loss, key)
        return total


def _refuse_unsuitable_spaces(spec: Spec) -> None:
    """Refuse actions that are not boxes with finite bounds, for which networks cannot always be built."""
    for key in spec.step_keys:
        for head, space in spec.steps[key].action_space.items():
            where = f"action head {head!r} of sub-step {key!r} has the space {space}"
            if not isinstance(space, Box):
                remedy = "use an algorithm for such spaces, such as DQN, SAC or PPO"
                raise ValueError(f"{where}, but TD3 needs boxes with finite bounds: {remedy}")
            if not space.is_bounded("both"):
                remedy = "give the space bounds, or use PPO or A2C"
                raise ValueError(f"{where}, but TD3 needs boxes with finite bounds: {remedy}")
