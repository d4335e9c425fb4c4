"""The three structured environments play by their rules, and a learner that credits acts wrongly must fail in them."""

from __future__ import annotations

from collections import defaultdict
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.envs import StructuredEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from tests.structured import agreement, hierarchy, team
from tests.structured.catalogue import SIMULATIONS, every_environment, random_rollout, right_credits
from tests.structured.planning import Plan, to_next
from tests.structured.tabular import Observe


def plan(module: ModuleType, **objective: Any) -> Plan:
    return Plan(SIMULATIONS[module], module.N_STEPS, **objective)


def acts_of(env: StructuredEnv, choose: Any, seed: int = 3) -> list[dict[str, Any]]:
    """Play an episode and record each act."""
    env.reset(seed=seed)
    acts: list[dict[str, Any]] = []
    while not acts or not acts[-1]["over"]:
        time, actor, state = env.get_env_time(), env.actor_id(), env.get_maze_state()
        _, reward, terminated, truncated, _ = env.step({"choice": choose(time, state)})
        assert not terminated
        advance = env.get_env_time() - time
        rewards = env.get_actor_rewards() if advance else None
        acts.append(
            {
                "time": time,
                "actor": actor,
                "state": state,
                "reward": reward,
                "rewards": rewards,
                "advance": advance,
                "done": env.is_actor_done(),
                "over": truncated,
            }
        )
    return acts


# ----------------------------------------------------------------------------------------------------- objectives


@every_environment
def test_no_policy_does_better_than_the_stated_optimum(module: ModuleType) -> None:
    assert plan(module).episode_return() == pytest.approx(module.OPTIMUM)


@every_environment
def test_the_discounted_objective_leads_to_the_optimum_whatever_ties_do(module: ModuleType) -> None:
    for credit in right_credits(module):
        discounted = plan(module, gamma=module.GAMMA, credit=credit, pessimist=True)
        assert discounted.episode_return() == pytest.approx(module.OPTIMUM)


@every_environment
def test_the_optimum_needs_nothing_that_agents_do_not_see(module: ModuleType) -> None:
    conversions: dict[Any, Observe] = module.make_env().env.observation_conversion_dict
    for credit in right_credits(module):
        discounted = plan(module, gamma=module.GAMMA, credit=credit)
        discounted.episode_return()
        in_common: dict[Any, set[int]] = defaultdict(lambda: set(range(SIMULATIONS[module].n_actions)))
        for (_, state), choices in discounted.choices.items():
            key = SIMULATIONS[module].actor(state).step_key
            seen = {name: tuple(numbers) for name, numbers in conversions[key].observe(state).items()}
            in_common[key, str(seen)] &= set(choices)
        assert all(in_common.values())
        assert len(in_common) < len(discounted.choices)


@every_environment
def test_with_gamma_for_each_act_the_best_policy_is_far_from_the_optimum(module: ModuleType) -> None:
    for credit in right_credits(module):
        sabotaged = plan(module, gamma=module.GAMMA, credit=credit, discount="acts")
        assert sabotaged.episode_return() < 0.5 * module.OPTIMUM


def test_with_the_rewards_of_another_agent_the_best_policy_of_the_team_is_far_from_the_optimum() -> None:
    assert plan(team, gamma=team.GAMMA, credit=to_next).episode_return() < 0.6 * team.OPTIMUM


# ---------------------------------------------------------------------------------------------------------- rules


@every_environment
def test_an_optimal_policy_earns_the_optimum_in_every_episode(module: ModuleType) -> None:
    optimal = plan(module, gamma=module.GAMMA)
    optimal.episode_return()
    for seed in range(5):
        acts = acts_of(module.make_env(), lambda time, state: optimal.choices[time, state][0], seed)
        assert sum(act["reward"] for act in acts) == pytest.approx(module.OPTIMUM)


@every_environment
def test_the_time_limit_truncates_in_the_act_that_completes_the_last_environment_step(module: ModuleType) -> None:
    env = module.make_env()
    assert isinstance(env, TimeLimitWrapper) and env.max_episode_steps == module.N_STEPS >= 20
    acts = acts_of(env, lambda time, state: 0)
    assert sum(act["advance"] for act in acts) == module.N_STEPS
    assert [act["over"] for act in acts] == [False] * (len(acts) - 1) + [True]
    assert acts[-1]["advance"] == 1


@every_environment
def test_the_same_seed_plays_the_same_episode(module: ModuleType) -> None:
    first, again, other = (acts_of(module.make_env(), lambda time, state: 0, seed) for seed in (4, 4, 5))
    assert [act["state"] for act in first] == [act["state"] for act in again]
    assert [act["state"] for act in first] != [act["state"] for act in other]


@every_environment
def test_observations_lie_in_their_spaces(module: ModuleType) -> None:
    env = module.make_env()
    random = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    truncated = False
    while not truncated:
        assert env.observation_space.contains(observation)
        observation, _, _, truncated, _ = env.step({"choice": int(random.integers(env.action_space["choice"].n))})
    assert env.observation_space.contains(observation)


def test_agreement_pays_a_deal_three_steps_later_and_a_grab_at_once() -> None:
    deal_at, grab_at, miss_at = 4, 5, 6

    def choose(time: int, state: agreement.State) -> int:
        if time == deal_at:
            return state.cue
        if time == grab_at or (time == miss_at and state.heard == -1):
            return agreement.GRAB
        return 1 - state.cue if state.heard == -1 else 1 - state.heard

    acts = acts_of(agreement.make_env(), choose)
    assert [act["actor"] for act in acts] == [(0, 0), (1, 0)] * agreement.N_STEPS
    rewards = {act["time"]: act["reward"] for act in acts if act["reward"]}
    assert rewards == {grab_at: 1.0, deal_at + agreement.DELAY: agreement.DEAL}
    assert all(act["rewards"] is None for act in acts)


def test_agreement_offers_nothing_that_would_come_too_late() -> None:
    acts = acts_of(agreement.make_env(), lambda time, state: agreement.GRAB)
    assert sum(act["reward"] for act in acts) == agreement.N_STEPS - agreement.DELAY
    assert {act["time"] for act in acts if act["state"].cue == -1} == {21, 22, 23}


def test_team_fills_orders_at_the_next_act_and_attributes_rewards_to_the_agents_that_act() -> None:
    def choose(time: int, state: team.State) -> int:
        wrong = 1 - state.cue
        if time == 2:
            return state.cue if state.agent == 0 else wrong
        if time == 12:
            return state.cue if state.agent == 2 else wrong
        return team.GRAB if (time, state.agent) == (5, 1) else wrong

    acts = acts_of(team.make_env(), choose)
    rewards = {act["time"]: act["rewards"] for act in acts if act["advance"]}
    unpaid = rewards.keys() - {3, 5, 13}
    assert not any(rewards[time].any() for time in unpaid)
    np.testing.assert_allclose(rewards[3], [1.0, -team.COST, -team.COST])
    np.testing.assert_allclose(rewards[5], [0.0, team.BITE, 0.0])
    np.testing.assert_allclose(rewards[13], [-team.COST, 1.0])
    for act in acts:
        assert act["reward"] == pytest.approx(0.0 if act["rewards"] is None else act["rewards"].sum())


def test_team_goes_on_without_the_agent_that_leaves() -> None:
    acts = acts_of(team.make_env(), lambda time, state: 0)
    agents = [act["actor"].agent_id for act in acts]
    assert agents == [0, 1, 2] * team.LEAVES_AFTER + [0, 2] * (team.N_STEPS - team.LEAVES_AFTER)
    done = [(act["time"], act["actor"].agent_id) for act in acts if act["done"]]
    assert done == [(team.LEAVES_AFTER - 1, team.LEAVER)]
    closed = {(act["time"], act["actor"].agent_id) for act in acts if act["state"].cue == -1}
    assert closed == {(team.LEAVES_AFTER - 1, team.LEAVER), (team.N_STEPS - 1, 0), (team.N_STEPS - 1, 2)}


def test_hierarchy_lets_the_worker_act_once_or_twice_in_each_step_of_a_job() -> None:
    acts = acts_of(hierarchy.make_env(), lambda time, state: 0)
    managed = [act["time"] for act in acts if act["actor"].step_key == "manager"]
    assert managed == list(range(0, hierarchy.N_STEPS, hierarchy.JOB_STEPS))
    worked = np.bincount([act["time"] for act in acts if act["actor"].step_key == "worker"])
    assert set(worked) == {1, 2}


@pytest.mark.parametrize("goal", [hierarchy.QUICK, hierarchy.THOROUGH])
def test_hierarchy_pays_for_the_share_of_right_acts(goal: int) -> None:
    def choose(time: int, state: hierarchy.State) -> int:
        if state.goal == -1:
            return goal
        right = state.cue if goal == hierarchy.QUICK else 1 - state.cue
        return 1 - right if time == 4 and state.acts == 0 else right

    acts = acts_of(hierarchy.make_env(), choose)
    paid = {act["time"]: act["reward"] for act in acts if act["reward"]}
    steps = range(4, 5) if goal == hierarchy.QUICK else range(4, 8)
    n_acts = sum(act["time"] in steps and act["actor"].step_key == "worker" for act in acts)
    full, offset = (1.0, 0) if goal == hierarchy.QUICK else (hierarchy.PAY, hierarchy.JOB_STEPS - 1)
    expected = {time + offset: full for time in range(0, hierarchy.N_STEPS, hierarchy.JOB_STEPS)}
    expected[4 + offset] = full * (n_acts - 1) / n_acts
    assert paid == pytest.approx({time: reward for time, reward in expected.items() if reward})


# ------------------------------------------------------------------------------------------------------- rollouts


@every_environment
def test_rollouts_end_within_episodes_and_delayed_rewards(module: ModuleType) -> None:
    rollout = random_rollout(module, 4, 50)
    assert rollout.env_steps == 4 * 50
    assert int(rollout.rows.truncated.sum()) == 4 * (50 // module.N_STEPS)
    last = rollout.rows.filled.sum(0) - 1
    assert not rollout.rows.truncated.gather(0, last[None]).any()
    assert sum(len(final.row) for final in rollout.finals.values()) == 4 * 3


def test_an_environment_step_of_the_hierarchy_may_have_two_rows() -> None:
    rows = random_rollout(hierarchy, 4, 50).rows
    assert len(rows.env_steps) > 50
    assert set(rows.env_steps[rows.filled].tolist()) == {0, 1}
    worked = random_rollout(hierarchy, 4, 50).segments["worker"].active
    assert torch.equal(worked, rows.filled)
