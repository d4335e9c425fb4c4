"""PPO and A2C solve CartPole within a stated number of environment steps, on every one of three seeds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.wrappers import RewardScalingWrapper
from maze_pl.modules import A2C, PPO
from tests.learning.training import networks, train

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

SEEDS = [0, 1, 2]
ENV = partial(make_gym_maze_env, "CartPole-v1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])])
def test_ppo_solves_cartpole_in_100k_environment_steps(seed: int) -> None:
    pl.seed_everything(seed, verbose=False)
    learner = PPO(
        networks=networks("shared", (64, 64)),
        lr=1e-3,
        lr_schedule="linear",
        gamma=0.99,
        gae_lambda=0.95,
        batch_size=256,
        n_optimization_epochs=8,
        entropy_coef=0.0,
        max_grad_norm=0.5,
    )
    reached = train(learner, ENV, seed=seed, n_rollouts=97, n_envs=8, n_rollout_steps=128)
    assert learner.env_steps == 97 * 8 * 128 <= 100_000
    assert reached >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])])
def test_a2c_solves_cartpole_in_200k_environment_steps(seed: int) -> None:
    pl.seed_everything(seed, verbose=False)
    learner = A2C(
        networks=networks("shared", (64, 64)),
        lr=2e-3,
        lr_schedule="linear",
        gamma=0.98,
        gae_lambda=1.0,
        entropy_coef=0.01,
        max_grad_norm=0.5,
    )
    # Returns of about 50 would give the critic nearly all of the gradient that is clipped.
    wrappers = [partial(RewardScalingWrapper, scale=0.05)]
    options: dict[str, Any] = {"n_envs": 8, "n_rollout_steps": 20, "wrappers": wrappers}
    reached = train(learner, ENV, seed=seed, n_rollouts=1250, stop_at=450, **options)
    assert learner.env_steps <= 1250 * 8 * 20 <= 200_000
    assert reached >= 450
