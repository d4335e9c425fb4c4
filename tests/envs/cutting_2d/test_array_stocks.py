"""Stocks and orders of many episodes in arrays, against simulations of single episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.cutting_2d import (
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    DemandGenerator,
    MixedPeriodicDemand,
    StaticDemand,
    UniformDemand,
)
from maze_pl.envs.cutting_2d.array_inventory import ArrayInventory
from maze_pl.envs.cutting_2d.array_orders import ArrayOrders

INSTANCES: list[tuple[DemandGenerator, tuple[int, int], int]] = [
    (StaticDemand([(1, 2), (1, 1)]), (4, 3), 50),
    (UniformDemand((6, 5)), (10, 8), 20),
    (UniformDemand((1, 3)), (4, 3), 20),
    (UniformDemand((1, 1)), (4, 3), 3),
    (MixedPeriodicDemand(3, 14, True), (6, 5), 5),
    (MixedPeriodicDemand(1, 7), (3, 4), 1),
    (MixedPeriodicDemand(2, 4), (2, 1), 2),
]


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: f"{type(instance[0]).__name__}-{instance[2]}")
def test_stocks_and_orders_equal_those_of_single_episodes(instance: Any) -> None:
    demand, raw, n_slots = instance
    n_envs = 8
    random = np.random.default_rng(0)
    everyone = np.arange(n_envs)
    cores = [Cutting2DCoreEnvironment(n_slots, raw, demand) for _ in range(n_envs)]
    orders, stocks = ArrayOrders(n_envs, demand, raw), ArrayInventory(n_envs, n_slots, raw)
    seeds = random.integers(2**31, size=n_envs)
    for core, seed in zip(cores, seeds.tolist(), strict=True):
        core.seed(seed)
        core.reset()
    orders.reset(everyone, seeds)
    stocks.reset(everyone)
    for step in range(280):  # more than two periods of all demands
        states = [core.get_maze_state() for core in cores]
        assert [list(state.current_demand) for state in states] == orders.current.tolist()
        for n, state in enumerate(states):
            assert stocks.pieces[n, : stocks.sizes[n]].tolist() == [list(piece) for piece in state.inventory]
            assert not stocks.pieces[n, stocks.sizes[n] :].any()
        piece_ids = random.integers(-1, n_slots + 1, n_envs)
        if step % 2:
            piece_ids = np.minimum(piece_ids, stocks.sizes - 1)
        rotate, reverse = random.integers(0, 2, (2, n_envs)).astype(np.bool_)
        chosen = np.flatnonzero(random.random(n_envs) < 0.7) if step % 3 else everyone
        cut = stocks.cut(chosen, piece_ids[chosen], rotate[chosen], reverse[chosen], orders.current[chosen])
        orders.advance(chosen)
        for place, n in enumerate(chosen):
            action = Cutting2DMazeAction(int(piece_ids[n]), bool(rotate[n]), bool(reverse[n]))
            info = cores[n].step(action)[4]
            outcome = "msg" if cut.is_cut[place] else "error"
            assert outcome in info
            assert (info.get("error") == "piece_id_out_of_bounds") == (not cut.is_piece[place])


def test_saved_orders_and_stocks_continue_as_they_were() -> None:
    demand = UniformDemand((3, 2))
    orders, stocks = ArrayOrders(3, demand, (4, 3)), ArrayInventory(3, 6, (4, 3))
    everyone, other = np.arange(3), np.array([0, 2])
    orders.reset(everyone, np.array([5, 6, 7]))
    stocks.reset(everyone)
    no = np.zeros(3, np.bool_)
    stocks.cut(everyone, np.zeros(3, np.int64), no, no, orders.current)
    orders.advance(other)
    copied_orders, copied_stocks = ArrayOrders(3, demand, (4, 3)), ArrayInventory(3, 6, (4, 3))
    copied_orders.load_state_dict(orders.state_dict())
    copied_stocks.load_state_dict(stocks.state_dict())
    for _ in range(200):
        for some_orders, some_stocks in ((orders, stocks), (copied_orders, copied_stocks)):
            some_stocks.cut(everyone, some_stocks.sizes - 1, no, no, some_orders.current)
            some_orders.advance(everyone)
        np.testing.assert_array_equal(orders.current, copied_orders.current)
        np.testing.assert_array_equal(stocks.pieces, copied_stocks.pieces)


def test_orders_that_do_not_fit_are_refused() -> None:
    orders = ArrayOrders(2, UniformDemand((9, 9)), (4, 3))
    with pytest.raises(ValueError, match=r"fit into raw pieces of size \(4, 3\): got \[\("):
        orders.reset(np.arange(2), np.array([1, 2]))
    with pytest.raises(ValueError, match="m_demanded_pieces=2"):
        ArrayOrders(2, MixedPeriodicDemand(3, 2), (4, 3)).reset(np.arange(2), np.array([1, 2]))


def test_a_generator_without_an_array_form_is_refused() -> None:
    class Ones(DemandGenerator):
        def period(self, *_: Any) -> list[tuple[int, int]]:
            return [(1, 1)]

    with pytest.raises(TypeError, match="Ones has no array form; define its periods"):
        ArrayOrders(2, Ones(), (4, 3)).reset(np.arange(2), np.array([1, 2]))
