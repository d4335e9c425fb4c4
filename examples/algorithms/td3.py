"""Twin delayed deep deterministic policy gradient (TD3), for continuous actions within bounds.

    a'       = clip(mu'(s') + clip(noise, -c, c))
    y        = R + D * min(Q1'(s', a'), Q2'(s', a'))
    L_critic = mean((Q1(s, a) - y)^2 + (Q2(s, a) - y)^2)
    L_policy = -mean(Q1(s, mu(s)))

Fujimoto et al. 2018, arXiv:1802.09477. The policy and the target networks (') are updated after every second update of
the critics. R and D are the rewards and the discount up to the actor's next act.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
from gymnasium import spaces
from torch import Tensor
from torch.optim import Optimizer

from maze_pl.agents import TorchStateActionCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.checks import check_at_least, check_fraction
from maze_pl.distributions import ProbabilityDistribution
from maze_pl.modules import AlgorithmModule, DataRequirements, FlatAdam, soft_update, target_copy

POLICY, CRITIC = range(2)
"""Indices of the optimisers."""

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class NoisyAction(ProbabilityDistribution):
    """The action mu = tanh(logits), scaled to the bounds of a box; samples have normal noise.

    Standard deviations are fractions of half the width of the box.
    """

    exploration_noise = 0.1

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """One number for each component of the action."""
        if not isinstance(action_space, spaces.Box) or not action_space.is_bounded():
            raise TypeError(f"{cls.__name__} needs a Box with bounds, got {action_space}")
        return (math.prod(action_space.shape),)

    def deterministic_sample(self) -> Tensor:
        """mu, with gradients."""
        low, high = self.bounds()
        unit = torch.tanh(self.logits).reshape(*self.logits.shape[:-1], *low.shape)
        return low + 0.5 * (high - low) * (1.0 + unit)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """mu with the noise of exploration."""
        return self.noisy(self.exploration_noise, math.inf, generator)

    def noisy(self, deviation: float, limit: float, generator: torch.Generator | None = None) -> Tensor:
        """mu with normal noise that is cut off at a limit, within the bounds."""
        action = self.deterministic_sample()
        noise = torch.randn(action.shape, generator=generator, dtype=action.dtype).to(action.device)
        low, high = self.bounds()
        noise = (deviation * noise).clamp(-limit, limit) * 0.5 * (high - low)
        return torch.minimum(torch.maximum(action + noise, low), high)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density of the exploration, before it is limited to the bounds."""
        deviation = self.deviation()
        standardised = (action - self.deterministic_sample()) / deviation
        return self.total(-0.5 * standardised.square() - deviation.log() - HALF_LOG_TWO_PI)

    def entropy(self) -> Tensor:
        """Entropy of the exploration, before it is limited to the bounds."""
        return self.total(
            torch.zeros_like(self.deterministic_sample()) + self.deviation().log() + 0.5 + HALF_LOG_TWO_PI
        )

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest action."""
        space = cast(spaces.Box, self.action_space)
        return self.logits.new_tensor(space.low), self.logits.new_tensor(space.high)

    def deviation(self) -> Tensor:
        """Standard deviation of the exploration."""
        low, high = self.bounds()
        return self.exploration_noise * 0.5 * (high - low)

    def total(self, terms: Tensor) -> Tensor:
        """Sum over the components of the action."""
        return terms.reshape(self.logits.shape).sum(dim=-1)


class TD3(AlgorithmModule):
    """TD3; batches come from a `ReplayDataModule`.

    Args:
        gamma: Discount of one environment step.
        tau: Fraction by which the target networks move towards the networks.
        policy_delay: Updates of the critics for one update of the policy.
        target_noise: Standard deviation of the noise of target actions, in halves of the box.
        noise_clip: Limit of that noise.
        options: Options of all algorithms, such as `networks` and `lr`.
    """

    batch_type = ReplayBatch
    critic_type = TorchStateActionCritic
    head_distributions: ClassVar[Any] = [
        {"action_space": "gymnasium.spaces.Box", "distribution": f"{__name__}.NoisyAction"}
    ]
    topic = "TD3Events"
    n_updates: Tensor

    def __init__(
        self,
        *,
        gamma: float = 0.99,
        tau: float = 0.005,
        policy_delay: int = 2,
        target_noise: float = 0.2,
        noise_clip: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_fraction(gamma=gamma, tau=tau)
        check_at_least(1, policy_delay=policy_delay)
        check_at_least(0, target_noise=target_noise, noise_clip=noise_clip)
        self.gamma, self.tau, self.policy_delay = gamma, tau, policy_delay
        self.target_noise, self.noise_clip = target_noise, noise_clip
        self.register_buffer("n_updates", torch.zeros((), dtype=torch.int64))  # saved with checkpoints

    @property
    def critic(self) -> TorchStateActionCritic:
        """The twin critics, which have target networks."""
        return cast(TorchStateActionCritic, self.networks.critic)

    def on_networks_ready(self) -> None:
        """Make the target network of the policy."""
        super().on_networks_ready()
        self.target_policy = target_copy(self.policy)

    def data_requirements(self) -> DataRequirements:
        """The data module sums rewards between two acts by this discount."""
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        """Create an optimiser for the policy and one for the critics."""
        groups = self.parameter_groups()
        if missing := {"policy", "critic"} - groups.keys():  # groups without parameters that require a gradient
            raise ValueError(f"TD3 trains policy and critic; all parameters are frozen in {sorted(missing)}")
        return [FlatAdam([{"params": groups[name], "name": name}], lr=self.lr) for name in ("policy", "critic")]

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        """Take gradient steps on the minibatches of a batch."""
        for minibatch in batch.updates():
            self.gradient_step(self.critic_loss, minibatch, optimizer=CRITIC, record_norms=True)
            self.n_updates.add_(1)
            if int(self.n_updates) % self.policy_delay == 0:
                if not self.in_critic_burn_in:
                    self.gradient_step(self.policy_loss, minibatch, optimizer=POLICY, record_norms=True)
                self.critic.update_targets(self.tau)
                soft_update(self.target_policy, self.policy, self.tau)

    def critic_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Squared TD errors of both critics, summed over sub-steps."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            with torch.no_grad():
                next_action = self.smoothed_action(key, next_observation, acts.agent_id)
                next_values = self.critic.action_value(
                    key, next_observation, next_action, target=True, agent_id=acts.agent_id
                )
                target = reward + discount * next_values.amin(dim=0)
            value = self.critic.action_value(key, acts.observation, acts.action, agent_id=acts.agent_id)  # [2, B]
            loss = acts.weighted_mean((value - target).square().sum(dim=0))
            self.record("critic_value", value.mean(), key)
            self.record("critic_value_loss", loss, key)
            total = total + loss
        return total

    def smoothed_action(self, key: StepKey, observation: dict[str, Tensor], agent_id: Tensor) -> dict[str, Tensor]:
        """Actions of the target policy, with noise."""
        joint = self.target_policy.distribution(key, observation, agent_id)
        return {
            head: cast(NoisyAction, distribution).noisy(self.target_noise, self.noise_clip)
            for head, distribution in joint.distributions.items()
        }

    def policy_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Minus the first critic's value of the policy's actions, summed over sub-steps."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            action = self.policy.distribution(key, acts.observation, acts.agent_id).deterministic_sample()
            values = self.critic.action_value(key, acts.observation, action, agent_id=acts.agent_id)
            loss = -acts.weighted_mean(values[0])
            self.record("policy_loss", loss, key)
            total = total + loss
        return total
