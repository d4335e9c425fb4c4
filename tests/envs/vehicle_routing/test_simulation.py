"""The simulation against routes computed by hand and a slow reference."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest

from maze_pl.envs.vehicle_routing import InstanceArrays, RoutingInstance, RoutingSimulation, route_distance
from maze_pl.envs.vehicle_routing.simulation import MoveResult, routes_of
from tests.envs.vehicle_routing.reference import SQUARE, SlowRouting, drawn, length_of

ONLY = np.zeros(1, np.int64)


def started(instance: RoutingInstance, n_vehicles: int = 1, spare: int = 0) -> RoutingSimulation:
    simulation = RoutingSimulation(1, instance.n_customers + spare, n_vehicles)
    simulation.reset(ONLY, InstanceArrays.of([instance], instance.n_customers + spare))
    return simulation


def moved(simulation: RoutingSimulation, vehicle: int, node: int) -> MoveResult:
    return simulation.move(ONLY, np.array([vehicle]), np.array([node]))


def allowed(simulation: RoutingSimulation) -> set[tuple[int, int]]:
    vehicles, nodes = np.nonzero(simulation.allowed[0])
    return set(zip(vehicles.tolist(), nodes.tolist(), strict=True))


def test_routes_of_one_vehicle_by_hand() -> None:
    simulation = started(SQUARE)
    assert allowed(simulation) == {(0, 1), (0, 2), (0, 3), (0, 4)}
    result = moved(simulation, 0, 1)
    assert (result.total.tolist(), result.returns.tolist()) == ([4.0], [[pytest.approx(np.nan, nan_ok=True)]])
    assert simulation.remaining.tolist() == [[2]]
    assert allowed(simulation) == {(0, 0), (0, 2), (0, 3)}  # customer 4 needs 3 of the 2 that are left
    result = moved(simulation, 0, 2)
    assert result.total.tolist() == [3.0 + 5.0]  # nothing fits, so that the vehicle returns by itself
    assert result.returns.tolist() == [[5.0]]
    assert result.loads.tolist() == [[0.75]]
    assert (simulation.position.tolist(), simulation.remaining.tolist()) == ([[0]], [[4]])
    result = moved(simulation, 0, 3)
    assert result.total.tolist() == [3.0 + 3.0]
    result = moved(simulation, 0, 4)
    assert result.is_complete.tolist() == [True]
    assert simulation.length.tolist() == [4 + 3 + 5 + 6 + 4]
    assert simulation.routes(0) == [[1, 2], [3], [4]]
    assert simulation.n_routes.tolist() == [3]
    assert not simulation.allowed.any()


def test_a_vehicle_may_return_early_and_full_capacity_waits_for_it() -> None:
    simulation = started(SQUARE)
    moved(simulation, 0, 2)
    result = moved(simulation, 0, 0)
    assert (result.distance.tolist(), result.total.tolist(), result.returns.tolist()) == ([5.0], [5.0], [[5.0]])
    assert result.loads.tolist() == [[0.25]]
    assert simulation.remaining.tolist() == [[4]]
    assert allowed(simulation) == {(0, 1), (0, 3), (0, 4)}


def test_routes_of_two_vehicles_grow_together() -> None:
    simulation = started(SQUARE, n_vehicles=2)
    assert {vehicle for vehicle, _ in allowed(simulation)} == {0}  # both are at the depot, and the same
    moved(simulation, 0, 4)
    assert allowed(simulation) == {(0, 0), (0, 2), (1, 1), (1, 2), (1, 3)}
    moved(simulation, 1, 3)
    result = moved(simulation, 1, 2)  # leaves nothing that fits on vehicle 0, which has room for 1
    assert result.total.tolist() == [4.0 + 2.0 + 5.0]
    assert result.returns.tolist() == [[2.0, 5.0]]  # on vehicle 1, nothing fits either: customer 1 needs 2
    assert simulation.position.tolist() == [[0, 0]]
    moved(simulation, 0, 1)
    assert simulation.routes(0) == [[4], [3, 2], [1]]
    assert simulation.length.tolist() == [2 * 2 + 3 + 4 + 5 + 2 * 4]


@pytest.mark.parametrize("n_vehicles", [1, 2, 3])
def test_every_step_equals_the_slow_reference(n_vehicles: int) -> None:
    choose = random.Random(0)
    for seed in range(8):
        instance = drawn("random(3-9, capacity=12)", seed)
        simulation = started(instance, n_vehicles, spare=seed % 3)
        slow = SlowRouting(instance, n_vehicles)
        while slow.unserved():
            assert allowed(simulation) == slow.allowed()
            assert simulation.length[0] == pytest.approx(slow.length)
            vehicle, node = choose.choice(sorted(slow.allowed()))
            before = slow.length
            slow.move(vehicle, node)
            result = moved(simulation, vehicle, node)
            assert result.is_valid.tolist() == [True]
            assert result.total[0] == pytest.approx(slow.length - before)
            assert simulation.n_routes[0] == len(slow.closed)
        assert not simulation.unserved.any()
        assert sorted(simulation.routes(0)) == sorted(slow.closed)
        assert simulation.length[0] == pytest.approx(length_of(instance, simulation.routes(0)))


def test_the_length_is_that_of_the_routes() -> None:
    choose = random.Random(1)
    for seed in range(5):
        instance = drawn("random(20)", seed)
        simulation = started(instance)
        while simulation.unserved.any():
            moved(simulation, *choose.choice(sorted(allowed(simulation))))
        routes = simulation.routes(0)
        assert simulation.length[0] == pytest.approx(sum(route_distance(instance, route) for route in routes))
        for route in routes:
            assert instance.demands[route].sum() <= instance.capacity


@pytest.mark.parametrize("choice", [(0, 4), (0, 9), (-1, 1), (1, 1), (0, -1)])
def test_a_move_that_is_not_allowed_goes_to_the_nearest_customer(choice: tuple[int, int]) -> None:
    simulation = started(SQUARE, spare=2)
    moved(simulation, 0, 1)
    result = moved(simulation, *choice)
    assert result.is_valid.tolist() == [False]
    assert (result.vehicle.tolist(), result.node.tolist()) == ([0], [2])  # at a distance of 3; customer 3 is 5 away
    assert simulation.routes(0) == [[1, 2]]


def test_customers_without_demand_are_served_by_full_vehicles() -> None:
    instance = RoutingInstance("empty", [(0, 0), (1, 0), (2, 0)], [0, 3, 0], 3)
    simulation = started(instance)
    moved(simulation, 0, 1)
    assert allowed(simulation) == {(0, 0), (0, 2)}
    assert moved(simulation, 0, 2).is_complete.tolist() == [True]
    assert simulation.routes(0) == [[1, 2]]


def test_the_largest_number_of_moves_is_written_down() -> None:
    instance = RoutingInstance("single", [(0, 0), (1, 0), (2, 0), (3, 0)], [0, 2, 2, 2], 3)
    simulation = started(instance)
    for customer in (3, 1, 2):
        moved(simulation, 0, customer)
    assert simulation.n_moves.tolist() == [6]
    assert routes_of(simulation.move_vehicles[0], simulation.move_nodes[0], 6) == [[3], [1], [2]]


def test_episodes_do_not_disturb_each_other() -> None:
    instances = [drawn("random(10)", seed) for seed in range(3)]
    together = RoutingSimulation(3, 10, 2)
    together.reset(np.arange(3), InstanceArrays.of(instances, 10))
    alone = [started(instance, 2) for instance in instances]
    choose = random.Random(2)
    for _ in range(30):
        which = [n for n in range(3) if alone[n].unserved.any() and choose.random() < 0.7]
        if not which:
            continue
        moves = [choose.choice(sorted(allowed(alone[n]))) for n in which]
        vehicles, nodes = np.array(moves).T
        together.move(np.array(which), vehicles, nodes)
        for n, move in zip(which, moves, strict=True):
            moved(alone[n], *move)
    for n in range(3):
        assert together.routes(n) == alone[n].routes(0)
        assert together.length[n] == alone[n].length[0]
        assert (together.allowed[n] == alone[n].allowed[0]).all()


def test_a_copy_continues_like_the_original() -> None:
    simulation = started(drawn("random(10)", 0), 2)
    moved(simulation, 0, 3)
    for other in (copy.deepcopy(simulation), pickle.loads(pickle.dumps(simulation))):
        expected = copy.deepcopy(simulation)
        assert moved(other, 1, 1).total == moved(expected, 1, 1).total
        assert (other.allowed == expected.allowed).all()
