"""Values of leaves: the critic's, where it knows the state, and returns of episodes without a critic."""

from __future__ import annotations

import pytest

from maze_pl.agents.torch_state_critic import StateCritic
from maze_pl.core.spec import Spec
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.search.decision import Decision
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.simulation import Simulation
from maze_pl.search.value_function import ValueFunction
from tests.search.policies import GAMMA, LastAllowed, SharedSumOfHistory, SumOfHistory
from tests.search.problems import TableCore, table_env


def simulations_after(*choices: int, limit: int = 10) -> tuple[Decision, list[Simulation]]:
    """Two simulations in the state after some choices."""
    env = TimeLimitWrapper(table_env(), limit)
    observation, _ = env.reset(seed=0)
    decision = Decision(env, observation, 0, lambda: TimeLimitWrapper(table_env(), limit), Spec.of(env), [], True, None)
    simulations = [decision.started(place, place) for place in range(2)]
    for simulation in simulations:
        for choice in choices:
            simulation.step({"choice": choice})
    return decision, simulations


def value_function(critic: StateCritic | None) -> ValueFunction:
    calls = PolicyCalls(LastAllowed(), Spec.of(table_env()), 1.0, 64)
    return ValueFunction(calls, critic, GAMMA, 2, 100)


def test_a_step_critic_knows_every_state() -> None:
    assert value_function(SumOfHistory())(*simulations_after(2)) == [20.0, 20.0]
    assert value_function(SumOfHistory())(*simulations_after(2, 1)) == [30.0, 30.0]


def test_a_shared_critic_is_asked_between_environment_steps() -> None:
    reward = TableCore().reward_of([1, 2])
    assert value_function(SharedSumOfHistory())(*simulations_after(1)) == [reward + GAMMA * 30.0] * 2
    assert value_function(SharedSumOfHistory())(*simulations_after(1, 2)) == [30.0, 30.0]


def test_a_terminated_episode_is_worth_nothing_and_a_truncated_one_its_value() -> None:
    assert value_function(SumOfHistory())(*simulations_after(1, 2, 0, 1)) == [0.0, 0.0]
    assert value_function(SumOfHistory())(*simulations_after(1, 2, limit=1)) == [30.0, 30.0]


def test_without_a_critic_the_policy_plays_to_the_end() -> None:
    core = TableCore()
    expected = core.reward_of([1, 2]) + GAMMA * core.reward_of([1, 2, 2])
    expected += GAMMA * core.reward_of([1, 2, 2, 1])  # sub-steps of one environment step are not discounted
    assert value_function(None)(*simulations_after(1)) == [pytest.approx(expected)] * 2
