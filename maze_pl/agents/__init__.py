"""Policies and critics: what acts in environments and what judges how well it goes."""

from maze_pl.agents.dummy_cartpole_policy import DummyCartPolePolicy as DummyCartPolePolicy
from maze_pl.agents.lunar_lander_heuristic_policy import LunarLanderHeuristicPolicy as LunarLanderHeuristicPolicy
from maze_pl.agents.policy_output import PolicyOutput as PolicyOutput
from maze_pl.agents.torch_actor_critic import TorchActorCritic as TorchActorCritic
from maze_pl.agents.torch_policy import TorchPolicy as TorchPolicy
from maze_pl.agents.torch_state_critic import StateCritic as StateCritic
from maze_pl.agents.torch_state_critic import TorchDeltaStateCritic as TorchDeltaStateCritic
from maze_pl.agents.torch_state_critic import TorchSharedStateCritic as TorchSharedStateCritic
from maze_pl.agents.torch_state_critic import TorchStepStateCritic as TorchStepStateCritic
from maze_pl.core.policy import RandomPolicy as RandomPolicy
