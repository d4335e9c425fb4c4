"""Base of wrappers of environments in tensors that change rewards."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.tensors.tensor_env import Outcome, Tensors
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper


class RewardTensorWrapper(TensorWrapper):
    """Wrapper that changes the agent's reward; the environment's reward is logged unchanged."""

    @abstractmethod
    def rewards(self, rewards: Tensor) -> Tensor:
        """Return changed rewards, without modifying the given ones.

        Args:
            rewards: [N] rewards of an act in float64.
        """

    def act(self, step_key: StepKey, action: Tensors) -> Outcome:
        """Act and change the rewards."""
        outcome = super().act(step_key, action)
        return outcome.with_reward(self.rewards(outcome.reward.double()))
