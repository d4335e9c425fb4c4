"""Policies and critics: what acts in environments and what judges how well it goes."""

from maze_pl.agents.dummy_cartpole_policy import DummyCartPolePolicy
from maze_pl.agents.policy_output import PolicyOutput
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_critic import (
    StateCritic,
    TorchDeltaStateCritic,
    TorchSharedStateCritic,
    TorchStepStateCritic,
)
from maze_pl.core.policy import RandomPolicy

__all__ = [
    "DummyCartPolePolicy",
    "PolicyOutput",
    "RandomPolicy",
    "StateCritic",
    "TorchActorCritic",
    "TorchDeltaStateCritic",
    "TorchPolicy",
    "TorchSharedStateCritic",
    "TorchStepStateCritic",
]
