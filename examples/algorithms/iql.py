"""Implicit Q-learning (IQL): learning from recorded episodes, without acting in the environment.

    L_value  = mean(|tau - 1[u < 0]| * u^2),   u = min(Q1'(s, a), Q2'(s, a)) - V(s)
    L_policy = -mean(min(exp(beta * u), 100) * log pi(a | s))
    L_critic = mean((Q1(s, a) - y)^2 + (Q2(s, a) - y)^2),   y = R + D * V(s')

Kostrikov et al. 2021, arXiv:2110.06169. No loss asks for the value of an action that was not recorded. Q' are the
target critics; R and D are the rewards and the discount up to the actor's next act.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from maze_pl.agents import StateCritic, TorchStateActionCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import TrajectoryBatch, TransitionBatch
from maze_pl.core.checks import check_at_least, check_fraction
from maze_pl.modules import AlgorithmModule, FlatAdam
from maze_pl.perception import StateCriticComposerInterface
from maze_pl.system.ranks import sum_over_ranks

POLICY, CRITIC, VALUE = range(3)
"""Indices of the optimisers."""


class IQL(AlgorithmModule):
    """IQL; batches come from a `TrajectoryDataModule` whose data set has next observations.

    Args:
        value: Composer of the state critic, in addition to the twin critics of `networks`.
        expectile: tau; 0.5 averages over the recorded actions, 1 takes the best of them.
        inverse_temperature: beta; 0 clones all actions alike.
        target_tau: Fraction by which the target critics move towards the critics.
        options: Options of all algorithms, such as `networks` and `lr`.
    """

    batch_type = TrajectoryBatch
    critic_type = TorchStateActionCritic
    topic = "IQLEvents"
    value: StateCritic

    def __init__(
        self,
        *,
        value: StateCriticComposerInterface,
        expectile: float = 0.7,
        inverse_temperature: float = 3.0,
        target_tau: float = 0.005,
        **options: Any,
    ) -> None:
        check_fraction(expectile=expectile, target_tau=target_tau)
        check_at_least(0, inverse_temperature=inverse_temperature)
        self.value_composer = value  # set first: the networks may be made in super().__init__
        super().__init__(**options)
        self.expectile, self.inverse_temperature, self.target_tau = expectile, inverse_temperature, target_tau

    @property
    def critic(self) -> TorchStateActionCritic:
        """The twin critics, which have target networks."""
        return cast(TorchStateActionCritic, self.networks.critic)

    def on_networks_ready(self) -> None:
        """Make the state critic."""
        super().on_networks_ready()
        self.value = self.value_composer.compose(self.spec)

    def configure_optimizers(self) -> list[Optimizer]:  # type: ignore[override]
        """Create an optimiser each for the policy, the critics and (group `other`) the state critic."""
        groups = self.parameter_groups()
        names = ("policy", "critic", "other")
        if missing := set(names) - groups.keys():  # groups without parameters that require a gradient
            raise ValueError(f"IQL trains all of its networks; all parameters are frozen in {sorted(missing)}")
        return [FlatAdam([{"params": groups[name], "name": name}], lr=self.lr) for name in names]

    def training_step(self, batch: TrajectoryBatch, batch_idx: int) -> None:
        """Take one gradient step on each loss."""
        self.env_steps += int(sum_over_ranks(torch.tensor(len(batch), device=self.device)))
        acts = {key: acts for key, acts in batch.acts.items() if len(acts)}
        self.gradient_step(self.value_loss, acts, optimizer=VALUE)
        if not self.in_critic_burn_in:
            self.gradient_step(self.policy_loss, acts, optimizer=POLICY, record_norms=True)
        self.gradient_step(self.critic_loss, acts, optimizer=CRITIC, record_norms=True)
        self.critic.update_targets(self.target_tau)

    def value_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Expectile regression of the target critics' values, summed over sub-steps."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            advantage = self.advantage(key, acts)
            weight = torch.where(advantage < 0, 1.0 - self.expectile, self.expectile)
            loss = (weight * advantage.square()).mean()
            self.record("value_loss", loss, key)
            total = total + loss
        return total

    def policy_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Log-likelihood of the recorded actions, weighted by their advantages, summed over sub-steps."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            advantage = self.advantage(key, acts).detach()
            weight = torch.exp(self.inverse_temperature * advantage).clamp(max=100.0)
            log_prob, entropy = self.policy.evaluate(key, acts.observation, acts.action, acts.agent_id)
            loss = -(weight * log_prob).mean()
            self.record("policy_loss", loss, key)
            self.record("policy_entropy", entropy.mean(), key)
            total = total + loss
        return total

    def critic_loss(self, minibatch: dict[StepKey, TransitionBatch]) -> Tensor:
        """Squared TD errors of both critics, summed over sub-steps."""
        total = torch.zeros((), device=self.device)
        for key, acts in minibatch.items():
            next_observation, reward, discount = acts.outcome
            next_value = self.value.value(key, next_observation, acts.agent_id).detach()
            value = self.critic.action_value(key, acts.observation, acts.action, agent_id=acts.agent_id)
            error = value - (reward + discount * next_value)
            loss = error.square().sum(dim=0).mean()
            self.record("critic_value_loss", loss, key)
            total = total + loss
        return total

    def advantage(self, key: StepKey, acts: TransitionBatch) -> Tensor:
        """[B] min(Q1'(s, a), Q2'(s, a)) - V(s)."""
        targets = self.critic.action_value(key, acts.observation, acts.action, target=True, agent_id=acts.agent_id)
        target = targets.amin(dim=0).detach()
        value = self.value.value(key, acts.observation, acts.agent_id)
        self.record("value", value.mean(), key)
        return target - value
