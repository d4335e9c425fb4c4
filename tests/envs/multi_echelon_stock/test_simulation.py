"""The simulation against one of single units, demand against its distribution, and wrong options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs.multi_echelon_stock import PoissonDemand, StockChain, first_state, run_period
from tests.envs.multi_echelon_stock.chains import CHAINS, SERIAL, UnitChain


def compare(chain: StockChain, seed: int, n_periods: int) -> None:
    random = np.random.default_rng(seed)
    state = first_state(chain, 1)
    units = UnitChain(chain)
    for _ in range(n_periods):
        amounts = random.integers(0, chain.largest_action + 1)
        demand = int(random.integers(0, 12))
        state, result = run_period(chain, state, amounts[np.newaxis], np.array([demand]))
        orders, cost, served, lost = units.play(amounts.tolist(), demand)
        assert result.orders[0].tolist() == orders
        assert (result.served[0], result.lost[0]) == (served, lost)
        assert result.costs.sum() == pytest.approx(cost)
        assert state.stock[0].tolist() == units.stock
        assert state.owed[0].tolist() == units.owed
        assert state.transit[0].sum(axis=1).tolist() == [len(shipments) for shipments in units.shipments]
        assert state.positions()[0].tolist() == [units.position(echelon) for echelon in range(chain.n_echelons)]


@pytest.mark.parametrize("name", CHAINS)
def test_periods_equal_those_of_single_units(name: str) -> None:
    compare(StockChain(**CHAINS[name]), seed=3, n_periods=60)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.sampled_from(["quantity", "level"]),
    st.one_of(st.none(), st.integers(0, 6)),
    st.one_of(st.none(), st.integers(12, 40)),
    st.integers(0, 2**32),
)
def test_generated_chains_equal_those_of_single_units(
    lead_times: list[int], target: Any, max_backlog: int | None, capacity: int | None, seed: int
) -> None:
    chain = StockChain(
        lead_times,
        PoissonDemand(4.0),
        backlog_costs=3,
        lost_sale_cost=5,
        fixed_costs=1,
        max_backlog=max_backlog,
        capacities=capacity,
        initial_stock=5,
        target=target,
    )
    compare(chain, seed, 40)


def test_units_are_neither_made_nor_destroyed() -> None:
    chain = StockChain(**SERIAL)
    state = first_state(chain, 50)
    random = np.random.default_rng(0)
    before = state.stock.sum(axis=1) + state.transit.sum(axis=(1, 2)) - state.owed[:, 0]
    for _ in range(30):
        demand = random.poisson(5, 50)
        state, result = run_period(chain, state, random.integers(0, 12, (50, 2)), demand)
        after = state.stock.sum(axis=1) + state.transit.sum(axis=(1, 2)) - state.owed[:, 0]
        assert (after - before == result.shipped[:, -1] - demand).all()
        before = after


def test_a_shipment_arrives_after_the_lead_time_and_is_sold_in_that_period() -> None:
    chain = StockChain([3], PoissonDemand(2.0), backlog_costs=1, initial_stock=0, holding_costs=0)
    state = first_state(chain, 1)
    state.transit[:] = 0
    backlogs = []
    for period in range(5):
        state, result = run_period(chain, state, np.array([[5 if period == 0 else 0]]), np.array([1]))
        backlogs.append(int(result.shortage[0, 0]))
    assert backlogs == [1, 2, 3, 0, 0]


def test_stationary_demand_is_poisson() -> None:
    demand = PoissonDemand(3.0)
    drawn, _ = demand.draw(
        np.zeros(20_000, np.int64), np.zeros(20_000, np.int64), np.random.default_rng(0).random((20_000, 2))
    )
    assert demand.probabilities.sum() == pytest.approx(1)
    assert drawn.mean() == pytest.approx(3, abs=0.05)
    assert drawn.var() == pytest.approx(3, abs=0.12)
    assert demand.probabilities[0, 0, :3] == pytest.approx(np.exp(-3) * np.array([1, 3, 4.5]))


def test_the_season_changes_the_mean() -> None:
    demand = PoissonDemand(8.0, season=4, amplitude=0.5)
    means = demand.probabilities[0] @ np.arange(demand.largest + 1)
    assert means == pytest.approx([8, 12, 8, 4], abs=1e-6)


def test_drift_moves_to_neighbouring_levels_and_stays_inside() -> None:
    demand = PoissonDemand(5.0, drift=0.4, step=1, lowest=4, highest=6)
    assert demand.levels.tolist() == [4, 5, 6]
    random = np.random.default_rng(1)
    levels = demand.first_levels(random.random(3000))
    assert np.bincount(levels) == pytest.approx([1000] * 3, rel=0.1)
    _, following = demand.draw(levels, np.zeros(3000, np.int64), random.random((3000, 2)))
    middle = following[levels == 1]
    assert np.bincount(middle) / len(middle) == pytest.approx([0.2, 0.6, 0.2], abs=0.05)
    assert set((following - levels).tolist()) == {-1, 0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lead_times": []}, "lead_times=.. must name at least one echelon"),
        ({"lead_times": [1, 0]}, "with 1 period or more each"),
        ({"holding_costs": [1, 2, 3]}, "holding_costs=.* must be 2 finite numbers"),
        ({"holding_costs": -1}, "holding_costs=-1 must be 2 finite numbers of at least 0"),
        ({"backlog_costs": 0}, "ordering nothing would be best"),
        ({"max_backlog": 0}, "losing all sales would be best"),
        ({"max_backlog": -1, "lost_sale_cost": 1}, "max_backlog=-1 must be at least 0 units"),
        ({"lost_sale_cost": float("inf")}, "lost_sale_cost=inf must be a finite number"),
        ({"capacities": 5}, "initial_stock=.* exceeds capacities="),
        ({"lead_times": [1.9, 1]}, "lead_times=.* in whole numbers"),
        ({"max_order": [2.7, 3]}, r"max_order=\[2.7, 3\] must be 2 whole numbers of at least 1"),
        ({"capacities": 30.9}, "capacities=30.9 must be 2 whole numbers"),
        ({"max_backlog": 2.5, "lost_sale_cost": 1}, "max_backlog=2.5 must be at least 0 units, a whole number"),
        ({"max_order": [1, 2, 3]}, "max_order=.* must be 2 whole numbers of at least 1"),
        ({"max_level": 9}, "max_level=9 belongs to target='level'"),
        ({"target": "sum"}, "known are target quantity or level"),
        ({"orders": "float"}, "orders discrete or box"),
        ({"periods": 0}, "periods=0 must be at least 1"),
    ],
)
def test_wrong_options_of_chains_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StockChain(**{**SERIAL, **options})


def test_numbers_of_any_type_count_for_all_echelons() -> None:
    options: dict[str, Any] = {"lead_times": [1, 2], "demand": PoissonDemand(5.0)}
    chain = StockChain(**options, backlog_costs=np.int64(9), capacities=np.int64(30), initial_stock=4.0)
    assert chain.backlog.tolist() == [9.0, 9.0]
    assert chain.capacity.tolist() == [30, 30]
    assert chain.first_stock.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": 0}, "mean=0 units must be above 0"),
        ({"amplitude": 0.5}, "needs a season of at least 2 periods"),
        ({"amplitude": 2, "season": 4}, "amplitude=2 from 0 to 1"),
        ({"drift": 2}, "drift=2 must be a probability"),
        ({"lowest": 1}, "belong to drifting demand"),
        ({"drift": 0.1, "step": 9}, "drift needs two levels or more"),
        ({"drift": 0.1, "lowest": 7, "highest": 6}, "must satisfy 0 < lowest < highest"),
    ],
)
def test_wrong_options_of_demand_get_one_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PoissonDemand(**{"mean": 4.0, **options})
