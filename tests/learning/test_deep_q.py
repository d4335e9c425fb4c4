"""DQN finds the known optimum of structured environments; TD3 swings up a pendulum."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
import pytorch_lightning as pl
from gymnasium import spaces
from torch import nn

from maze_pl.distributions import DeterministicProbabilityDistribution, EpsilonGreedyProbabilityDistribution
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import DQN, TD3
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    StepStateCriticComposer,
)
from maze_pl.schedules import Linear
from tests.learning.replay import SEED, learned_return
from tests.learning.training import policy_net
from tests.structured import agreement, hierarchy, team

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*LeafSpec.*")]


def networks(hidden_units: tuple[int, ...], dueling: bool) -> CustomModelComposer:
    """Dense networks of values."""
    value_net = partial(FlattenConcatStateValueNet, non_lin=nn.Tanh, hidden_units=hidden_units)
    critic = StepStateCriticComposer([value_net]) if dueling else None
    config = [{"action_space": spaces.Space, "distribution": EpsilonGreedyProbabilityDistribution}]
    return CustomModelComposer(ProbabilisticPolicyComposer([policy_net(hidden_units)]), critic, config)


@pytest.mark.parametrize(
    ("module", "dueling"),
    [
        pytest.param(agreement, False, marks=pytest.mark.long, id="agreement"),
        pytest.param(team, True, marks=pytest.mark.long, id="team"),
        pytest.param(hierarchy, False, id="hierarchy"),
    ],
)
def test_dqn_comes_within_5_percent_of_the_optimum(module: ModuleType, dueling: bool) -> None:
    pl.seed_everything(SEED, verbose=False)
    options: dict[str, Any] = {"gamma": module.GAMMA, "lr": 3e-3, "target_update_interval": 1, "tau": 0.02}
    epsilon = Linear(1.0, 0.05, until=0.6)
    learner = DQN(networks=networks((32,), dueling), dueling=dueling, epsilon=epsilon, **options)
    data = {"num_actors": 4, "n_rollout_steps": 4, "num_batches_per_iter": 8, "initial_buffer_size": 1000}
    enough = 0.95 * module.OPTIMUM
    assert learned_return(learner, module.make_env, 400, stop_at=enough, **data) >= enough


def test_td3_swings_up_a_pendulum() -> None:
    pl.seed_everything(SEED, verbose=False)
    q_net = partial(FlattenConcatStateActionValueNet, non_lin=nn.ReLU, hidden_units=(64, 64))
    config = [{"action_space": spaces.Box, "distribution": DeterministicProbabilityDistribution}]
    policy = ProbabilisticPolicyComposer([policy_net((64, 64))])
    learner = TD3(networks=CustomModelComposer(policy, SharedStateActionCriticComposer([q_net]), config), lr=2e-3)
    options = {"n_rollout_steps": 8, "num_batches_per_iter": 8, "batch_size": 128, "initial_buffer_size": 1000}
    reached = learned_return(learner, lambda: GymMazeEnv("Pendulum-v1"), 1300, stop_at=-400, **options)
    assert reached >= -400  # about -1,200 before
