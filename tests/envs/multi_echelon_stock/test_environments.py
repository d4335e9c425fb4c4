"""Flat, structured and array forms: rewards, events, KPIs, ends, copies and conversions."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import WeightedRewardAggregator, check_env
from maze_pl.envs.multi_echelon_stock import (
    CostRewardAggregator,
    PoissonDemand,
    ServiceRewardAggregator,
    StockArrayEnvironment,
    StockChain,
    StockEvents,
    stock_factory,
    structured_stock_factory,
)
from maze_pl.envs.wrappers import LogStatsWrapper, RewardScalingWrapper
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.multi_echelon_stock.chains import CHAINS, SERIAL

FACTORIES: dict[str, Any] = {"flat": stock_factory, "structured": structured_stock_factory}
every_form = pytest.mark.parametrize("form", FACTORIES)
every_chain = pytest.mark.parametrize("name", CHAINS)


@every_form
@every_chain
def test_arrays_equal_single_episodes(form: str, name: str) -> None:
    chain = StockChain(**CHAINS[name])
    pair = PairOfForms(
        StockArrayEnvironment(chain, structured=form == "structured"), partial(FACTORIES[form], chain), 3, 1
    )
    pair.play(25)
    assert pair.n_ended


@every_form
def test_other_rewards_are_equal_in_arrays(form: str) -> None:
    chain = StockChain(**SERIAL)

    def make() -> Any:
        return FACTORIES[form](chain, ServiceRewardAggregator(7, scale=0.3, team_share=0.4, baseline=9.0))

    aggregator = ServiceRewardAggregator(7, scale=0.3, team_share=0.4, baseline=9.0)
    PairOfForms(StockArrayEnvironment(chain, aggregator, form == "structured"), make, 2, 4).play(30)


@every_form
def test_saved_arrays_continue_as_they_were(form: str) -> None:
    chain = StockChain(**CHAINS["drifting"])
    pair = PairOfForms(
        StockArrayEnvironment(chain, structured=form == "structured"), partial(FACTORIES[form], chain), 2, 1
    )
    pair.play(10)
    copied = StockArrayEnvironment(chain, structured=form == "structured")
    copied.allocate(2)
    copied.load_state_dict(copy.deepcopy(pair.arrays.state_dict()))
    pair.arrays = copied
    pair.play(20)


def test_the_doctor_finds_nothing_wrong() -> None:
    env = RewardScalingWrapper(structured_stock_factory(StockChain(**SERIAL)), 0.02)
    report = check_env(env, n_steps=40)
    assert [line for line in report.lines if line.verdict not in ("ok", "skipped")] == []


@pytest.mark.slow
@every_form
@every_chain
def test_the_doctor_finds_nothing_wrong_in_any_form(form: str, name: str) -> None:
    env = RewardScalingWrapper(FACTORIES[form](StockChain(**CHAINS[name])), 0.02)
    report = check_env(env, n_steps=100)
    assert [line for line in report.lines if line.verdict not in ("ok", "skipped")] == []


CONSTANT = {**SERIAL, "initial_stock": [6, 4], "holding_costs": [1, 0.5], "fixed_costs": [2, 3]}
"""The pipeline of the second echelon brings 5 units in the first period."""


def play_one(form: str, aggregator: Any = None, seed: int = 0) -> tuple[Any, float, list[float] | None]:
    """Order 3 and 4 units in one period."""
    env = FACTORIES[form](StockChain(**CONSTANT), aggregator)
    env.reset(seed=seed)
    rewards = None
    if form == "flat":
        _, reward, *_ = env.step({"order": np.array([3, 4])})
    else:
        env.step({"order": 3})
        _, reward, *_ = env.step({"order": 4})
        rewards = env.get_actor_rewards().tolist()
    return env, reward, rewards


@every_form
def test_rewards_are_minus_the_costs_by_hand(form: str) -> None:
    env, reward, _ = play_one(form)
    demand = int(env.get_maze_state().received[0, 0])
    left = 6 - demand
    downstream = max(left, 0) + 9 * max(-left, 0) + 2
    upstream = 0.5 * (4 - 3) + 3
    assert reward == pytest.approx(-downstream - upstream)
    state = env.get_maze_state()
    assert state.stock.tolist() == [max(left, 0) + 3, 1 + 5]
    assert state.transit[1].tolist() == [4]
    assert state.received[:, 0].tolist() == [demand, 3]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_echelons_are_credited_with_their_costs_or_with_shares(share: float) -> None:
    env, reward, rewards = play_one("structured", CostRewardAggregator(team_share=share))
    demand = int(env.get_maze_state().received[0, 0])
    own = np.array([-(max(6 - demand, 0) + 9 * max(demand - 6, 0) + 2), -3.5])
    assert rewards == pytest.approx(((1 - share) * own + share * own.mean()).tolist())
    assert sum(rewards or []) == pytest.approx(reward)


def test_the_service_reward_counts_units_that_were_not_served_at_once() -> None:
    env, reward, _ = play_one("flat", ServiceRewardAggregator(20, scale=0.1))
    demand = int(env.get_maze_state().received[0, 0])
    cheaper = play_one("flat", ServiceRewardAggregator(20, scale=0.1, baseline=30))[1]
    assert cheaper == pytest.approx(reward + 0.1 * 30)
    assert reward == pytest.approx(-0.1 * (max(6 - demand, 0) + 0.5 + 5 + 20 * max(demand - 6, 0)))


def test_upstream_echelons_see_the_order_that_they_have_just_received() -> None:
    env = structured_stock_factory(StockChain(**CONSTANT))
    first, _ = env.reset(seed=0)
    second, reward, *_ = env.step({"order": 3})
    assert (env.actor_id(), env.get_env_time(), reward) == ((0, 1), 0, 0.0)
    assert (first["own"][-1], second["own"][-1]) == (0, pytest.approx(3 / 5))
    assert first["place"].tolist() == [1, 0]
    assert second["place"].tolist() == [0, 1]
    assert second["costs"].tolist() == pytest.approx([0.5, 0, 3 / 5, 0])
    env.step({"order": 4})
    assert (env.actor_id(), env.get_env_time()) == ((0, 0), 1)


@every_form
def test_an_episode_is_truncated_and_has_kpis(form: str) -> None:
    env = LogStatsWrapper(FACTORIES[form](StockChain(**CONSTANT)))
    env.reset(seed=2)
    costs = 0.0
    truncated = terminated = False
    demands, stocks = [], []
    while not truncated:
        action = np.array([5, 5]) if form == "flat" else 5
        _, reward, terminated, truncated, _ = env.step({"order": action})
        costs -= reward
        for record in env.get_step_events():
            if record.event is StockEvents.customer_demand and (form == "flat" or env.actor_id().agent_id == 0):
                demands.append((record.attributes["demand"], record.attributes["served"]))
            if record.event is StockEvents.echelon_period and (form == "flat" or env.actor_id().agent_id == 0):
                stocks.append(record.attributes["stock"])
    assert not terminated
    (summary,) = env.drain_episode_summaries()
    assert summary.env_steps == 12
    assert summary.kpis["cost_per_period"] == pytest.approx(costs / 12)
    assert summary.kpis["mean_stock"] == pytest.approx(sum(stocks) / 12)
    served = sum(served for _, served in demands) / sum(demand for demand, _ in demands)
    assert summary.kpis["fill_rate"] == pytest.approx(served)


@every_form
def test_an_environment_takes_over_the_state_of_another(form: str) -> None:
    env, other = (FACTORIES[form](StockChain(**CHAINS["drifting"])) for _ in range(2))
    env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(5):
        env.step(env.action_space.sample())
    other.reset(seed=2)
    other.clone_from(env)
    for _ in range(6):
        action = env.action_space.sample()
        results = [one.step(action) for one in (env, other)]
        np.testing.assert_equal(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]


@every_form
@pytest.mark.parametrize("orders", ["discrete", "box"])
def test_recorded_states_and_actions_are_converted_back(form: str, orders: Any) -> None:
    env = FACTORIES[form](StockChain(**{**SERIAL, "orders": orders}))
    observation, _ = env.reset(seed=0)
    state = env.get_maze_state()
    before = pickle.dumps(state.stock)
    env.action_space.seed(3)
    env.step(env.action_space.sample())
    observations, actions = env.get_observation_and_action_dicts(state, env.get_maze_action(), True)
    np.testing.assert_equal(observations, {0: observation})
    again = env.action_conversion.space_to_maze(actions[0], state)
    assert again == env.get_maze_action()
    assert pickle.dumps(state.stock) == before


def test_box_orders_are_rounded_within_the_limits_of_each_echelon() -> None:
    env = stock_factory(StockChain(**{**SERIAL, "orders": "box", "max_order": [10, 20]}))
    env.reset(seed=0)
    for action, expected in [([-1, 1], (0, 20)), ([0, 0], (5, 10)), ([0.49, -0.96], (7, 0))]:
        env.step({"order": np.array(action, np.float32)})
        assert env.get_maze_action().amounts == expected


def test_a_flat_action_has_an_amount_for_each_echelon() -> None:
    env = stock_factory(StockChain(**SERIAL))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="names 3 amounts; give one for each of 2 echelons"):
        env.core_env._play(np.array([1, 2, 3]))


@pytest.mark.parametrize(
    "make", [structured_stock_factory, StockArrayEnvironment, partial(StockArrayEnvironment, structured=True)]
)
def test_an_aggregator_without_rewards_of_echelons_is_refused_by_forms_that_need_them(make: Any) -> None:
    weighted = WeightedRewardAggregator({"cost": CostRewardAggregator()})
    with pytest.raises(TypeError, match="WeightedRewardAggregator does not tell the rewards of echelons; derive it"):
        make(StockChain(**SERIAL), reward_aggregator=weighted)
    stock_factory(StockChain(**SERIAL), reward_aggregator=weighted).reset()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CostRewardAggregator(scale=0), "scale=0 must be above 0"),
        (lambda: CostRewardAggregator(team_share=2), "team_share=2 from 0 to 1"),
        (lambda: ServiceRewardAggregator(penalty=-1), "penalty=-1 must be a finite number"),
    ],
)
def test_wrong_options_of_rewards_get_one_message(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_seasons_are_observed() -> None:
    env = stock_factory(StockChain([1], PoissonDemand(4.0, season=4, amplitude=0.5), backlog_costs=5))
    first, _ = env.reset(seed=0)
    second, *_ = env.step({"order": 4})
    assert first["season"].tolist() == pytest.approx([0, 1], abs=1e-6)
    assert second["season"].tolist() == pytest.approx([1, 0], abs=1e-6)


def test_the_simulation_needs_neither_torch_nor_matplotlib() -> None:
    modules = "'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    code = f"import sys, maze_pl.envs.multi_echelon_stock; assert {modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
