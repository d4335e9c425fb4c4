"""PPO finds the known optimum of three structured environments, and does not if it credits acts wrongly."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.modules import PPO
from maze_pl.perception import ProbabilisticPolicyComposer
from tests.learning.sabotage import Sabotage, SabotagedPPO, gamma_for_each_act, rewards_of_predecessor
from tests.learning.training import Critic, networks, policy_net, train
from tests.structured import agreement, hierarchy, team
from tests.structured.catalogue import SIMULATIONS, random_rollout, right_credits
from tests.structured.planning import Plan

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")

SEED = 1


def is_long(module: ModuleType, critic: Critic) -> bool:
    """Whether a pair is left to the long tests: shared critics are tried where agents agree, others elsewhere."""
    return (critic == "shared") != (module is agreement)


every_pair = pytest.mark.parametrize(
    ("module", "critic"),
    [
        pytest.param(module, critic, marks=[pytest.mark.long] if is_long(module, critic) else [])
        for module in SIMULATIONS
        for critic in ("shared", "step")
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__.split(".")[-1],
)


def options(module: ModuleType) -> dict[str, Any]:
    return {
        "gamma": module.GAMMA,
        "gae_lambda": 0.95,
        "lr": 3e-3,
        "batch_size": 100,
        "n_optimization_epochs": 4,
        "entropy_coef": 0.01,
        "max_grad_norm": 0.5,
    }


def learned_return(module: ModuleType, learner: PPO, stop_at: float | None = None) -> float:
    """Return of what is learned from up to 16000 environment steps, in rollouts of two episodes and two steps."""
    return train(learner, module.make_env, seed=SEED, n_rollouts=40, stop_at=stop_at, n_envs=8, n_rollout_steps=50)


def share_of_the_optimum(module: ModuleType, learner: PPO) -> float:
    """Share of the optimum that is learned; training ends when it is within 5 percent."""
    return learned_return(module, learner, 0.95 * module.OPTIMUM) / module.OPTIMUM


def sabotaged_return(module: ModuleType, critic: Critic, sabotage: Sabotage) -> float:
    pl.seed_everything(SEED, verbose=False)
    learner = SabotagedPPO(sabotage=sabotage, networks=networks(critic, (32,)), **options(module))
    return learned_return(module, learner)


@pytest.mark.slow
@every_pair
def test_ppo_comes_within_5_percent_of_the_optimum(module: ModuleType, critic: Critic) -> None:
    pl.seed_everything(SEED, verbose=False)
    learner = PPO(networks=networks(critic, (32,)), **options(module))
    assert share_of_the_optimum(module, learner) >= 0.95


@pytest.mark.slow
def test_with_a_delta_critic_ppo_comes_within_5_percent_of_the_optimum() -> None:
    pl.seed_everything(SEED, verbose=False)
    learner = PPO(networks=networks("delta", (32,)), **options(agreement))
    assert share_of_the_optimum(agreement, learner) >= 0.95


@pytest.mark.slow
def test_agents_with_networks_of_their_own_come_within_5_percent_of_the_optimum() -> None:
    pl.seed_everything(SEED, verbose=False)
    composer = networks("step", (32,))
    composer.policy = ProbabilisticPolicyComposer([policy_net((32,))], substeps_with_separate_agent_nets=["member"])
    learner = PPO(networks=composer, **options(team))
    assert share_of_the_optimum(team, learner) >= 0.95
    assert len(learner.policy.networks[0]) == team.N_AGENTS


@pytest.mark.slow
@every_pair
def test_with_gamma_for_each_sub_step_ppo_finds_the_optimum_of_the_wrong_objective(
    module: ModuleType, critic: Critic
) -> None:
    credit = right_credits(module)[0 if critic == "shared" else -1]
    wrong = Plan(SIMULATIONS[module], module.N_STEPS, module.GAMMA, credit, discount="acts").episode_return()
    reached = sabotaged_return(module, critic, gamma_for_each_act)
    assert reached < 0.5 * module.OPTIMUM
    assert reached == pytest.approx(wrong, rel=0.05)


@pytest.mark.slow
@pytest.mark.long
def test_with_the_rewards_of_another_agent_ppo_stays_far_from_the_optimum() -> None:
    assert sabotaged_return(team, "step", rewards_of_predecessor) < 0.6 * team.OPTIMUM


# ------------------------------------------------------------------------------------------------ the sabotage itself


def test_gamma_for_each_act_lets_every_act_take_time() -> None:
    for module in (agreement, team, hierarchy):
        rollout = random_rollout(module, 2, 30)
        n_acts = sum(int(segment.active.sum()) for segment in rollout.segments.values())
        assert gamma_for_each_act(rollout).env_steps == n_acts > rollout.env_steps == 60
        assert torch.equal(gamma_for_each_act(rollout).rows.env_steps > 0, rollout.rows.filled)


def test_rewards_of_predecessor_moves_rewards_by_one_agent() -> None:
    rollout = random_rollout(team, 2, 30)
    before = rollout.segments["member"].actor_reward
    after = rewards_of_predecessor(rollout).segments["member"].actor_reward
    assert before is not None and after is not None
    assert torch.equal(after[:, [1, 2, 0, 4, 5, 3]], before[:, [0, 1, 2, 3, 4, 5]])
    assert not torch.equal(after, before)
