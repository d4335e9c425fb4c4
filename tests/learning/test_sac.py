"""SAC swings up a pendulum, and finds the known optimum of three structured environments."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
import pytorch_lightning as pl
from gymnasium import spaces
from torch import nn

from maze_pl.distributions import SquashedGaussianProbabilityDistribution
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import SAC
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    StepStateActionCriticComposer,
)
from tests.learning.replay import SEED, learned_return
from tests.learning.training import policy_net
from tests.structured import agreement, hierarchy, team

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*LeafSpec.*")]


def networks(critic: type[Any], hidden_units: tuple[int, ...]) -> CustomModelComposer:
    """Dense networks for policy and critics of actions, and actions within their bounds."""
    q_net = partial(FlattenConcatStateActionValueNet, non_lin=nn.ReLU, hidden_units=hidden_units)
    config = [{"action_space": spaces.Box, "distribution": SquashedGaussianProbabilityDistribution}]
    return CustomModelComposer(ProbabilisticPolicyComposer([policy_net(hidden_units)]), critic([q_net]), config)


def test_sac_swings_up_a_pendulum() -> None:
    pl.seed_everything(SEED, verbose=False)
    learner = SAC(networks=networks(SharedStateActionCriticComposer, (64, 64)), lr=2e-3)
    options = {"n_rollout_steps": 8, "num_batches_per_iter": 8, "batch_size": 128, "initial_buffer_size": 1000}
    assert learned_return(learner, lambda: GymMazeEnv("Pendulum-v1"), 1000, stop_at=-170, **options) >= -170


@pytest.mark.parametrize(
    ("module", "critic"),
    [
        pytest.param(agreement, SharedStateActionCriticComposer, marks=pytest.mark.long, id="agreement"),
        pytest.param(team, StepStateActionCriticComposer, marks=pytest.mark.long, id="team"),
        pytest.param(hierarchy, StepStateActionCriticComposer, id="hierarchy"),
    ],
)
def test_sac_comes_within_5_percent_of_the_optimum(module: ModuleType, critic: type[Any]) -> None:
    pl.seed_everything(SEED, verbose=False)
    learner = SAC(
        networks=networks(critic, (32,)), gamma=module.GAMMA, lr=3e-3, target_entropy_multiplier=0.1, tau=0.02
    )
    options = {"num_actors": 4, "n_rollout_steps": 4, "num_batches_per_iter": 8, "initial_buffer_size": 1000}
    enough = 0.95 * module.OPTIMUM
    assert learned_return(learner, module.make_env, 400, stop_at=enough, **options) >= enough
