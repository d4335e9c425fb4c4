"""Deep Q-network: off-policy learning of the values of discrete actions."""

from typing import Any, ClassVar, Literal, cast

import torch
from gymnasium.spaces import Box
from torch import Tensor
from torch.nn import functional

from maze_pl.agents import StateCritic, TorchActorCritic
from maze_pl.agents.network_io import refuse_recurrent
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.checks import check_at_least, check_fraction, check_not_negative, check_positive
from maze_pl.core.rows import Tree
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DataRequirements
from maze_pl.distributions import EpsilonGreedyProbabilityDistribution
from maze_pl.distributions.probability_distribution import chosen_options
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import DistributionOverrides, NetworksOption, as_spec
from maze_pl.modules.optimization.optimizer_options import OptimizerChoice
from maze_pl.modules.optimization.parameter_group import ParameterGroup
from maze_pl.modules.target_networks import soft_update, target_copy, warn_of_rounding
from maze_pl.modules.td_errors import TDErrors
from maze_pl.schedules import Coefficient, Linear, value_at

Heads = dict[str, EpsilonGreedyProbabilityDistribution]
"""Values of the options of each head."""


class DQN(AlgorithmModule):
    """Deep Q-network for discrete heads, with double Q-learning, dueling networks and several heads.

        Q(s, a) = sum over heads and their choices of Q_c(s, a_c)     [+ V(s), if dueling]
        a'      = argmax_a Q(s', a), or argmax_a Q'(s', a) without double Q-learning
        y       = R + D * Q'(s', a')
        L       = mean(huber(Q(s, a) - y))

    Mnih et al. 2015, https://doi.org/10.1038/nature14236; double Q-learning: van Hasselt et al.
    2016, arXiv:1509.06461; dueling networks: Wang et al. 2016, arXiv:1511.06581. Q' is computed
    with the target networks. R and D are the rewards and the discount up to the next act of the
    same actor; where an episode was truncated, D is not 0. Maxima are over the options that are
    allowed by masks. Losses are summed over sub-steps.

    The policy's networks compute the values: their outputs for a head are the Q_c of the options of
    all its choices, as `EpsilonGreedyProbabilityDistribution` describes, which the networks'
    `distribution_mapper_config` must name. As Q is a sum over heads, as in `SAC`, its maximum is
    found head by head; interactions of heads are not represented. With `dueling`, the outputs are
    advantages A_c, the critic computes V, and Q_c is A_c minus its mean over the allowed options.

    Batches come from a `ReplayDataModule`, which has the options of collecting and sampling,
    n-step returns and priorities among them.

    Args:
        lr: Learning rate: a number or a schedule.
        gamma: Discount of one environment step; the data module sums rewards by it.
        double_q: Choose the next action with the networks in training instead of the target networks.
        dueling: Add the values of a state critic, which `networks` must then have.
        epsilon: Probability of a random option while collecting, for each choice: a number or a
            schedule. None is a linear decay from 1 to 0.05 in the first tenth of the run, which needs
            the trainer's `max_epochs`.
        target_update_interval: Updates between two updates of the target networks.
        tau: Fraction by which the target networks move towards the networks in each update of them;
            1 copies the networks. A number or a schedule.
        huber_delta: Error beyond which the loss grows linearly: a number or a schedule above 0; the
            number 0 for squared errors.
        networks: Composer that builds policy and, if dueling, critic; `auto`, the default, for
            networks that fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        optimizer: `adam`, `sgd` with a momentum of 0.9, or a class of optimisers with its options.
        optimizer_groups: Pattern of parameter names -> options of the optimiser for these
            parameters; the first pattern that matches counts.
        frozen: Patterns of parameter names, such as `policy.*`, that are not trained.
        max_grad_norm: Maximum L2 norm of the gradient; 0 for no limit.
        lr_schedule: `linear` decays the learning rate from `lr` to 0 over all batches of the run.
        critic_burn_in_epochs: Number of initial epochs in which only the critic learns, if dueling.
            Parameters that it shares with the policy are not updated either.
        grad_norms_by_part: Also record the gradient norm of each part of the networks, such as body
            and heads, under the statistics `policy_grad_norm` and `critic_grad_norm`.
        capture: `auto` traces the operations of an update once and runs the trace, where that is
            possible and yields the same numbers; `off` runs every update eagerly. With priorities
            every update is eager.

    Raises:
        ValueError: A number is out of range, a head has another distribution, a network is
            recurrent, or the critic does not fit `dueling`.
    """

    batch_type: ClassVar[type] = ReplayBatch
    head_distributions: ClassVar[DistributionOverrides] = [
        {
            "action_space": "gymnasium.spaces.Space",
            "distribution": "maze_pl.distributions.EpsilonGreedyProbabilityDistribution",
        }
    ]
    topic = "DQNEvents"
    n_updates: Tensor

    def __init__(
        self,
        *,
        lr: Coefficient = 5e-4,
        gamma: float = 0.99,
        double_q: bool = True,
        dueling: bool = False,
        epsilon: Coefficient | None = None,
        target_update_interval: int = 500,
        tau: Coefficient = 1.0,
        huber_delta: Coefficient = 1.0,
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
        if spec is not None:
            _refuse_boxes(as_spec(spec))
        self._has_default_epsilon = epsilon is None
        epsilon = Linear(1.0, 0.05, until=0.1) if epsilon is None else epsilon
        # Set first: the networks may be made in super().__init__, which reads them.
        self.dueling = dueling
        if dueling:
            self.critic_type = StateCritic  # type: ignore[misc]  # of this instance
        self._first_epsilon = value_at("epsilon", epsilon, 0.0, check_fraction)
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
        self.double_q = double_q
        self.epsilon = self.coefficient("epsilon", epsilon, check_fraction)
        self.target_update_interval = target_update_interval
        self.tau = self.coefficient("tau", tau, check_fraction)
        check_delta = check_positive if callable(huber_delta) else check_not_negative
        self.huber_delta = self.coefficient("huber_delta", huber_delta, check_delta)
        self.register_buffer("n_updates", torch.zeros((), dtype=torch.int64))
        self.td_errors = TDErrors()

    def on_networks_ready(self) -> None:
        """Check networks and heads, prepare exploration, and make the target networks.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        policy, critic = self.policy, self.networks.critic
        if isinstance(critic, StateCritic) and critic.kind == "delta":
            remedy = "use a SharedStateCriticComposer or a StepStateCriticComposer"
            raise ValueError(f"dueling=True needs values of states, which a delta critic does not have: {remedy}")
        if not self.dueling and critic is not None:
            remedy = "leave the critic out of networks (null), or set networks to auto, or set dueling to true"
            raise ValueError(f"DQN learns the values with the policy's networks, without a critic: {remedy}")
        if critic is not None:
            refuse_recurrent(critic, "the critic")
        for key, networks in zip(policy.spec.step_keys, policy.networks, strict=True):
            refuse_recurrent(networks, f"the policy's network of sub-step {key!r}")
            for head, distribution in policy.distribution_classes(key).items():
                if not issubclass(distribution, EpsilonGreedyProbabilityDistribution):
                    where = f"action head {head!r} of sub-step {key!r} has a {distribution.__name__}"
                    remedy = "name EpsilonGreedyProbabilityDistribution in distribution_mapper_config"
                    raise ValueError(f"{where}, but DQN needs values of discrete options: {remedy}")
        policy.set_exploration(self._first_epsilon)
        self.target = target_copy(self.networks)

    def on_fit_start(self) -> None:
        """Warn if the weights have too few digits for target networks to follow.

        Raises:
            ValueError: The length of the run is unknown, which schedules need.
        """
        if self._has_default_epsilon and self.trainer.max_epochs in (None, -1):
            came = "DQN's default epsilon falls over a tenth of the run, whose length is unknown"
            raise ValueError(f"{came}: set trainer.max_epochs, or model.epsilon to a number")
        super().on_fit_start()
        warn_of_rounding(self.target, self.value_of("tau"))

    def on_coefficients_set(self) -> None:
        """Let the policy explore with the epsilon of the next batch."""
        super().on_coefficients_set()
        self.policy.set_exploration(self.value_of("epsilon"))

    def data_requirements(self) -> DataRequirements:
        """Return the discount, by which the data module sums rewards between two acts."""
        return DataRequirements(gamma=self.gamma)

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        """Learn from the minibatches of a batch."""
        self.td_errors.begin(batch)
        tau = self.value_of("tau")
        n_updates = int(self.n_updates)  # read once, as reading waits for the device
        for index, acts in enumerate(batch.updates()):
            is_traced = not self.td_errors.are_wanted
            self.gradient_step(self.loss, acts, traced=is_traced, record_norms=index == 0)
            n_updates += 1
            if n_updates % self.target_update_interval == 0:
                soft_update(self.target, self.networks, tau)
        self.n_updates.fill_(n_updates)
        self.td_errors.report(batch)

    def loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Compute the Huber loss of the TD errors, see the class."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            with torch.no_grad():
                next_value = self.next_value(key, next_observation, acts.agent_id)
                target = torch.addcmul(reward, discount, next_value)
            value = self.action_value(key, acts.observation, acts.action, acts.agent_id)
            error = value - target
            loss = acts.weighted_mean(self.penalty(error))
            total = total + loss
            size = error.detach().abs()
            self.td_errors.keep(key, size)
            self.record("q_value", value.mean(), key)
            self.record("td_error", size.mean(), key)
            self.record("value_loss", loss, key)
        return total

    def action_value(
        self,
        key: StepKey,
        observation: Tree,
        action: dict[str, Tensor],
        agent_id: Tensor,
        target: bool = False,
    ) -> Tensor:
        """Compute Q(s, a), see the class.

        Args:
            key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            action: Head -> [B, ...], their actions.
            agent_id: [B] ids of the agents.
            target: Whether to use the target networks.

        Returns:
            [B]
        """
        networks = self.target if target else self.networks
        heads = _heads(networks, key, observation, agent_id)
        options = {head: chosen_options(values.action_space, action[head]) for head, values in heads.items()}
        return self._value(networks, key, observation, agent_id, heads, options)

    def next_value(self, key: StepKey, observation: Tree, agent_id: Tensor) -> Tensor:
        """Compute Q'(s', a'), see the class; a variant with another target overrides it.

        Args:
            key: The sub-step.
            observation: Name -> [B, ...], the next observations of the actors.
            agent_id: [B] ids of the agents.

        Returns:
            [B]
        """
        heads = _heads(self.target, key, observation, agent_id)
        choosing = _heads(self.networks, key, observation, agent_id) if self.double_q else heads
        options = {head: values.greedy_options() for head, values in choosing.items()}
        return self._value(self.target, key, observation, agent_id, heads, options)

    def _value(
        self,
        networks: TorchActorCritic,
        key: StepKey,
        observation: Tree,
        agent_id: Tensor,
        heads: Heads,
        options: dict[str, Tensor],
    ) -> Tensor:
        """[B] Q of options; `heads` holds the outputs of the policy's networks."""
        terms = [values.value_of(options[head]) for head, values in heads.items()]
        if self.dueling:
            terms += [-values.mean_value() for values in heads.values()]
            terms.append(cast(StateCritic, networks.critic).value(key, observation, agent_id))
        return sum(terms[1:], terms[0])

    def penalty(self, error: Tensor) -> Tensor:
        """Compute the Huber loss of errors [B], or their squares: [B]."""
        delta = self.huber_delta
        if isinstance(delta, Tensor):  # follows a schedule
            size = error.abs()
            return torch.where(size <= delta, 0.5 * size.square(), delta * (size - 0.5 * delta))
        if delta == 0.0:
            return error.square()
        return functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def _refuse_boxes(spec: Spec) -> None:
    """Refuse continuous actions, for which no networks of values can be built."""
    for key in spec.step_keys:
        for head, space in spec.steps[key].action_space.items():
            if isinstance(space, Box):
                where = f"action head {head!r} of sub-step {key!r} has the space {space}"
                remedy = "use an algorithm for such spaces, such as SAC, TD3 or PPO"
                raise ValueError(f"{where}, but DQN needs discrete options: {remedy}")


def _heads(networks: TorchActorCritic, key: StepKey, observation: Tree, agent_id: Tensor) -> Heads:
    """Evaluate the policy's networks."""
    return cast(Heads, networks.policy.distribution(key, observation, agent_id).distributions)
