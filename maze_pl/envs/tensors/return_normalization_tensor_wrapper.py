"""Division of rewards in tensors by the standard deviation of discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.tensors.tensor_env import Outcome, TensorEnv, Tensors
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper


class ReturnNormalizationTensorWrapper(TensorWrapper):
    """Divides rewards by the running standard deviation of the discounted return.

    The formula is that of `ReturnNormalizationRewardWrapper`. Each environment has its own returns
    and statistics until they are merged.

    Args:
        env: The environment to wrap.
        gamma: Discount factor of the return.
        epsilon: Added to the variance.
    """

    def __init__(self, env: TensorEnv, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        self.gamma, self.epsilon = gamma, epsilon
        self._last_key = list(env.observation_spaces_dict)[-1]

    def make_tensors(self, n_envs: int) -> None:
        """Make the statistics, and the returns of the running episodes."""
        options: Any = {"dtype": torch.float64, "device": self.device}
        # number, mean and m2 of the returns at the last merge, at first of a 0
        self.base = [torch.tensor(value, **options) for value in (1.0, 0.0, 0.0)]
        # and those of each environment since then
        self.n = torch.zeros((), **options)
        self.mean = torch.zeros(n_envs, **options)
        self.m2 = torch.zeros(n_envs, **options)
        self.scale = torch.ones(n_envs, **options)
        self.returns = torch.zeros(n_envs, **options)
        self.step_reward = torch.zeros(n_envs, **options)  # of the incomplete environment steps

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        """Start episodes with new returns."""
        self.returns.masked_fill_(which, 0.0)
        self.step_reward.masked_fill_(which, 0.0)
        super().begin(which, seeds)

    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Act, update the statistics by the rewards, and normalise them."""
        outcome = super().act(step_key, action)
        reward = outcome.reward.double()
        self.step_reward.add_(reward)
        if step_key == self._last_key:
            self._add_returns()
        return outcome.with_reward(reward / self.scale)

    def _add_returns(self) -> None:
        """Add the returns of environment steps that are complete (Welford 1962)."""
        self.returns.mul_(self.gamma).add_(self.step_reward)
        self.step_reward.zero_()
        self.n.add_(1)
        difference = self.returns - self.mean
        self.mean.add_(difference / self.n)
        self.m2.add_(difference * (self.returns - self.mean))
        self._update_scale()

    def _update_scale(self) -> None:
        """Compute the merged standard deviations; 1 while all returns were 0."""
        base_n, base_mean, base_m2 = self.base
        total = base_n + self.n
        difference = self.mean - base_mean
        m2 = base_m2 + self.m2 + difference * difference * base_n * self.n / total
        m2 = torch.where(self.n > 0, m2, base_m2)
        self.scale.copy_(torch.where(m2 > 0, (m2 / total + self.epsilon).sqrt(), 1.0))

    def shared_state(self) -> dict[str, Any]:
        """Return the statistics at the last merge, and those of all environments together since."""
        return {"base": [part.clone() for part in self.base], "delta": list(self._joined())}

    def _joined(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return number, mean and m2 of returns since the last merge (Chan, Golub, LeVeque 1979)."""
        mean = self.mean.mean()
        difference = self.mean - mean
        return self.n * self.n_envs, mean, self.m2.sum() + self.n * (difference * difference).sum()

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Take over statistics, and continue from there."""
        for part, value in zip(self.base, state["base"], strict=True):
            part.copy_(torch.as_tensor(value, dtype=torch.float64))
        for part, value in zip((self.n, self.mean, self.m2), state["delta"], strict=True):
            part.copy_(torch.as_tensor(value, dtype=torch.float64))
        self._update_scale()

    def merge(self) -> None:
        """Merge the statistics of all environments into those at the last merge."""
        n, mean, m2 = self.base
        new_n, new_mean, new_m2 = self._joined()
        total = n + new_n
        difference = new_mean - mean
        share = torch.where(total > 0, new_n / total, 0.0)
        m2.add_(new_m2 + difference * difference * n * share)
        mean.add_(difference * share)
        n.copy_(total)
        for part in (self.n, self.mean, self.m2):
            part.zero_()
        self._update_scale()
