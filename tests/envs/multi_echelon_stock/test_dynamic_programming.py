"""Exact optima against all policies of tiny chains, and against the newsvendor's formula."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.multi_echelon_stock import PoissonDemand, StockChain
from maze_pl.envs.multi_echelon_stock.base_stock_policy import BaseStockPolicy
from maze_pl.envs.multi_echelon_stock.dynamic_programming import StockOptimum, optimal_stock
from tests.envs.multi_echelon_stock.chains import UnitChain

TINY: dict[str, Any] = {
    "lead_times": [1],
    "demand": PoissonDemand(0.7),
    "max_backlog": 0,
    "lost_sale_cost": 4,
    "fixed_costs": 0.5,
    "capacities": 2,
    "max_order": 2,
    "initial_stock": 1,
}
TINY_PAIR: dict[str, Any] = {
    **TINY,
    "lead_times": [1, 1],
    "holding_costs": [1, 0.3],
    "capacities": 1,
    "max_order": 1,
}


def cost_by_units(chain: StockChain, optimum: StockOptimum, policy: tuple[int, ...]) -> float:
    """Mean cost of a policy, by the stationary distribution of a Markov chain made with single units."""
    states = [
        (tuple(stock), tuple(owed))
        for stock, owed in zip(optimum.states.stock.tolist(), optimum.states.owed.tolist(), strict=True)
    ]
    matrix = np.zeros((len(states), len(states)))
    costs = np.zeros(len(states))
    for place, (stock, owed) in enumerate(states):
        for demand, probability in enumerate(chain.demand.probabilities[0, 0]):
            units = UnitChain(chain)
            units.stock = list(stock)
            units.owed = list(owed)
            _, cost, _, _ = units.play(optimum.actions[policy[place]].tolist(), demand)
            matrix[place, states.index((tuple(units.stock), tuple(units.owed)))] += probability
            costs[place] += probability * cost
    limit = np.linalg.matrix_power(0.5 * (matrix + np.eye(len(states))), 1 << 20)
    return float(limit[0] @ costs)


def test_the_optimum_is_that_of_the_best_of_all_policies() -> None:
    chain = StockChain(**TINY)
    optimum = optimal_stock(chain)
    policies = list(itertools.product(range(len(optimum.actions)), repeat=len(optimum.policy)))
    costs = [cost_by_units(chain, optimum, policy) for policy in policies]
    assert len(policies) == 27
    assert min(costs) == pytest.approx(optimum.cost, abs=1e-5)
    assert costs[policies.index(tuple(optimum.policy.tolist()))] == pytest.approx(optimum.cost, abs=1e-5)


def test_no_change_of_an_action_improves_the_optimum_of_two_echelons() -> None:
    chain = StockChain(**TINY_PAIR)
    optimum = optimal_stock(chain)
    best = optimum.policy.tolist()
    assert cost_by_units(chain, optimum, tuple(best)) == pytest.approx(optimum.cost, abs=1e-5)
    random = np.random.default_rng(0)
    for _ in range(40):
        other = [int(a) if random.random() < 0.7 else int(random.integers(len(optimum.actions))) for a in best]
        assert cost_by_units(chain, optimum, tuple(other)) >= optimum.cost - 1e-5


def test_costs_of_other_policies_are_exact() -> None:
    chain = StockChain(**TINY)
    optimum = optimal_stock(chain)
    for policy in [(1, 1, 1), (2, 1, 0), (0, 2, 1)]:
        amounts = optimum.actions[list(policy)]
        assert optimum.cost_of(amounts) == pytest.approx(cost_by_units(chain, optimum, policy), abs=1e-5)


@pytest.mark.parametrize("lead_time", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_echelon_with_backlogs_is_the_newsvendor(lead_time: int) -> None:
    chain = StockChain(
        [lead_time],
        PoissonDemand(1.0),
        backlog_costs=9,
        lost_sale_cost=200,
        max_backlog=12,
        capacities=8,
        max_order=20,
        initial_stock=2,
    )
    optimum = optimal_stock(chain)
    probabilities = PoissonDemand(1.0 * (lead_time + 1)).probabilities[0, 0]
    demand = np.arange(len(probabilities))
    costs = []
    for level in range(12):
        left = level - demand
        costs.append(float(probabilities @ np.where(left > 0, left, -9 * left)))
    assert optimum.cost == pytest.approx(min(costs), abs=1e-4)
    rule = BaseStockPolicy({}, [int(np.argmin(costs))])
    orders, _ = rule.quantities(chain, optimum.states, np.zeros((len(optimum.policy), 1, 0), np.int64))
    assert optimum.cost_of(orders) == pytest.approx(min(costs), abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"demand": PoissonDemand(0.7, drift=0.1, step=0.2)}, "needs stationary demand"),
        ({"capacities": None}, "needs finitely many states: give max_backlog and capacities"),
        ({"capacities": 20, "max_order": 20}, "more than max_states=10 states"),
    ],
)
def test_chains_without_a_small_set_of_states_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimal_stock(StockChain(**{**TINY, **options}), max_states=10)
