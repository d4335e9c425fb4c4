"""Base stock and (s, S) by hand, in all forms, and the search for their levels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl import rollout
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.multi_echelon_stock import (
    ChainState,
    PoissonDemand,
    StockChain,
    stock_factory,
    structured_stock_factory,
)
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.multi_echelon_stock.optimised_levels import (
    demand_of_episodes,
    mean_costs,
    optimise_base_stock,
    optimise_reorder,
)
from maze_pl.envs.multi_echelon_stock.ordering_policy import OrderingPolicy
from maze_pl.envs.multi_echelon_stock.reorder_policy import ReorderPolicy
from maze_pl.envs.wrappers import DiscretizeActionsWrapper
from maze_pl.envs.wrappers.translated_rule_policy import TranslatedRulePolicy
from tests.envs.multi_echelon_stock.chains import CHAINS, SERIAL

STATE = ChainState(np.array([[3, 8]]), np.array([[2, 1]]), np.array([[[0], [4]]]))  # positions 2 and 11
NO_HISTORY = np.zeros((1, 2, 0), np.int64)


def test_base_stock_orders_what_is_missing_and_counts_the_order_from_below() -> None:
    orders, levels = BaseStockPolicy({}, [7, 12]).quantities(StockChain(**SERIAL), STATE, NO_HISTORY)
    assert orders.tolist() == [[5, 6]]
    assert levels.tolist() == [[7, 12]]


def test_gains_move_the_level_with_observed_demand() -> None:
    received = np.array([[[6, 8], [5, 5]]])  # means 7 and 5 with a mean demand of 5
    orders, _ = BaseStockPolicy({}, [7, 12], [1.5, 2.0]).quantities(StockChain(**SERIAL), STATE, received)
    assert orders.tolist() == [[8, 9]]


def test_gains_need_a_history() -> None:
    chain = StockChain(**{**SERIAL, "history": 0})
    with pytest.raises(
        ValueError, match=r"gains=\[1.5, 2.0\] follow the last demands, of which .* history=0 keeps none"
    ):
        BaseStockPolicy({}, [7, 12], [1.5, 2.0]).quantities(chain, STATE, NO_HISTORY)


def test_reorder_waits_for_the_reorder_point() -> None:
    orders, _ = ReorderPolicy({}, [2, 10], [9, 30]).quantities(StockChain(**SERIAL), STATE, NO_HISTORY)
    assert orders.tolist() == [[7, 15]]  # the second echelon: 30 - (11 - 7), at most 15
    orders, _ = ReorderPolicy({}, [1, 10], [9, 30]).quantities(StockChain(**SERIAL), STATE, NO_HISTORY)
    assert orders.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda action_spaces: BaseStockPolicy(action_spaces, [15, 24]),
        lambda action_spaces: ReorderPolicy(action_spaces, [14, 23], [15, 24]),
    ],
)
def test_rules_count_the_order_that_was_placed_below(make: Any) -> None:
    env = structured_stock_factory(StockChain([1, 2], PoissonDemand(5.0), backlog_costs=[9.0, 0.0]))
    policy = make(env.action_spaces_dict)
    env.reset(seed=0)
    env.step({"order": 0})  # instead of the 5 of the rule
    state = env.get_maze_state()
    assert state.positions.tolist() == [10, 20]
    batch = PolicyBatch(env.actor_id().step_key, {}, np.array([1]), maze_state=[state])
    assert policy.act(batch).action["order"].tolist() == [4]


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("orders", ["discrete", "box"])
@pytest.mark.parametrize("target", ["quantity", "level"])
def test_rules_do_the_same_in_all_forms(name: str, orders: Any, target: Any) -> None:
    chain = StockChain(**{**CHAINS[name], "orders": orders, "target": target})
    results = []
    for make in (stock_factory, structured_stock_factory):
        env: Any = make(chain)
        policy = BaseStockPolicy(env.action_spaces_dict)
        env.reset(seed=1)
        truncated = False
        total = 0.0
        while not truncated:
            state = env.get_maze_state()
            step = policy.act(PolicyBatch(0, {}, np.zeros(1, np.int64), maze_state=[state]))
            _, reward, _, truncated, _ = env.step({"order": np.asarray(step.action["order"])[0]})
            total += reward
        results.append((total, env.get_maze_state().stock.tolist()))
    assert results[0][1] == results[1][1]
    assert results[0][0] == pytest.approx(results[1][0])


def test_the_shipped_heuristic_plays() -> None:
    (episode,) = rollout(lambda: structured_stock_factory(StockChain(**SERIAL)), "heuristic", episodes=1, seed=0)
    assert episode.summary.env_steps == 12
    assert episode.summary.kpis["fill_rate"] > 0.7


def test_costs_of_the_search_are_those_of_the_environment() -> None:
    chain = StockChain(**{**SERIAL, "periods": 8})
    env = stock_factory(chain)
    policy = BaseStockPolicy(env.action_spaces_dict, [11, 16])
    env.reset(seed=9)
    total = 0.0
    for _ in range(8):
        step = policy.act(PolicyBatch(0, {}, np.zeros(1, np.int64), maze_state=[env.get_maze_state()]))
        total -= env.step({"order": step.action["order"][0]})[1]
    assert mean_costs(chain, policy, demand_of_episodes(chain, 1, 9))[0] == pytest.approx(total / 8)


def test_the_search_finds_the_level_of_the_newsvendor() -> None:
    chain = StockChain([1], PoissonDemand(4.0), backlog_costs=9, periods=60)
    tried: list[tuple[int, float]] = []
    found = optimise_base_stock(chain, 40, progress=lambda n, cost: tried.append((n, cost)))
    assert found.arguments["levels"][0] in (11, 12, 13)  # quantile 0.9 of Poisson(8) is 12
    assert tried[-1][1] == found.cost


def test_reorder_points_pay_with_fixed_costs() -> None:
    chain = StockChain([1], PoissonDemand(2.0), backlog_costs=9, fixed_costs=8, periods=40)
    base = optimise_base_stock(chain, 20)
    found = optimise_reorder(chain, 20)
    assert found.cost < 0.9 * base.cost
    assert found.arguments["reorder_points"][0] < found.arguments["levels"][0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReorderPolicy({}, [5], [5]), "must be above reorder_points"),
        (lambda: BaseStockPolicy({}, [5], [1.0, 2.0]), "need one entry for each echelon"),
    ],
)
def test_wrong_levels_get_one_message(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "policy",
    [BaseStockPolicy({}, [5]), ReorderPolicy({}, [1], [5]), BaseStockPolicy({}, gains=[1.0, 1.0, 5.0])],
)
def test_levels_for_another_number_of_echelons_are_refused(policy: OrderingPolicy) -> None:
    with pytest.raises(ValueError, match="does not have one entry for each of 2 echelons"):
        policy.quantities(StockChain(**SERIAL), STATE, NO_HISTORY)


def test_a_rule_needs_states() -> None:
    with pytest.raises(ValueError, match="needs the states of the simulation"):
        BaseStockPolicy({}).act(PolicyBatch(0, {}, np.zeros(1, np.int64)))


BOXES: dict[str, Any] = {**SERIAL, "orders": "box", "target": "level", "max_level": [20, 40]}


def discretized(num_bins: int) -> Any:
    return partial(DiscretizeActionsWrapper, discretization_config={"order": {"num_bins": num_bins}})


@pytest.mark.parametrize("make", [stock_factory, structured_stock_factory])
@pytest.mark.parametrize("num_bins", [11, 41, 101])
def test_units_are_not_taken_for_bins(make: Any, num_bins: int) -> None:
    rule = partial(BaseStockPolicy, levels=[15, 24])
    with pytest.raises(ValueError, match=r"BaseStockPolicy gives actions of .*Box.*; play it without wrappers"):
        rollout(partial(make, StockChain(**BOXES)), rule, wrappers=[discretized(num_bins)], record=())


@pytest.mark.parametrize("make", [stock_factory, structured_stock_factory])
def test_heads_of_fewer_units_are_refused(make: Any) -> None:
    few, many = (make(StockChain(**{**SERIAL, "max_order": most})) for most in (5, 9))
    few.reset(seed=0)
    batch = PolicyBatch(0, {}, np.zeros(1, np.int64), maze_state=[few.get_maze_state()])
    with pytest.raises(ValueError, match="BaseStockPolicy gives actions of"):
        BaseStockPolicy(many.action_spaces_dict).act(batch)


@pytest.mark.parametrize("make", [stock_factory, structured_stock_factory])
def test_a_translated_rule_takes_the_nearest_bins(make: Any) -> None:
    levels = [15, 24]
    of_bins = [[0, 5, 10, 15, 20], [0, 10, 20, 30, 40]]  # units of 5 bins
    nearest = [min(bins, key=lambda units: abs(units - level)) for bins, level in zip(of_bins, levels, strict=True)]
    assert nearest == [15, 20]
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "record": ()}
    factory = partial(make, StockChain(**BOXES))
    translated = partial(TranslatedRulePolicy, policy=BaseStockPolicy, policy_arguments={"levels": levels})
    found = rollout(factory, translated, wrappers=[discretized(5)], **options)
    expected = rollout(factory, partial(BaseStockPolicy, levels=nearest), **options)
    assert [one.summary.reward for one in found] == [one.summary.reward for one in expected]


@pytest.mark.parametrize("make", [stock_factory, structured_stock_factory])
def test_the_heuristic_plays_the_same_with_two_bins_for_each_unit(make: Any) -> None:
    chain = StockChain(**{**BOXES, "max_level": 40})
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "record": ()}
    returns = []
    for wrappers in ([], [discretized(81)]):
        played = rollout(partial(make, chain), "heuristic", wrappers=wrappers, **options)
        returns.append([one.summary.reward for one in played])
    assert returns[0] == returns[1]
