"""The networks of an agent together: what is trained, moved between devices and saved as one."""

from __future__ import annotations

from torch import nn

from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_critic import StateCritic


class TorchActorCritic(nn.Module):
    """A policy and, for algorithms that need one, a critic.

    Args:
        policy: What acts.
        critic: What estimates values, or None.
    """

    def __init__(self, policy: TorchPolicy, critic: StateCritic | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
