"""Policies and critics: networks that choose actions, and networks that estimate values.

The networks themselves belong to `maze_pl.perception`, losses to `maze_pl.modules`.
"""

from .dummy_cartpole_policy import DummyCartPolePolicy as DummyCartPolePolicy
from .lunar_lander_heuristic_policy import LunarLanderHeuristicPolicy as LunarLanderHeuristicPolicy
from .torch_actor_critic import TorchActorCritic as TorchActorCritic
from .policy_outputs import PolicyOutput as PolicyOutput
from .torch_policy import TorchPolicy as TorchPolicy
from .torch_shared_state_action_critic import (
    TorchSharedStateActionCritic as TorchSharedStateActionCritic,
)
from .torch_state_action_critic import TorchStateActionCritic as TorchStateActionCritic
from .torch_step_state_action_critic import TorchStepStateActionCritic as TorchStepStateActionCritic
from .torch_state_critic import Critic as Critic
from .torch_state_critic import StateCritic as StateCritic
from .torch_delta_state_critic import TorchDeltaStateCritic as TorchDeltaStateCritic
from .torch_shared_state_critic import TorchSharedStateCritic as TorchSharedStateCritic
from .torch_step_state_critic import TorchStepStateCritic as TorchStepStateCritic
from maze_pl.core.random_policy import RandomPolicy as RandomPolicy
