"""Planned routes that observations show."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.vehicle_routing import (
    RoutingInstance,
    StructuredVehicleRoutingArrayEnvironment,
    VehicleRoutingArrayEnvironment,
    improved_savings_routes,
    savings_routes,
    vehicle_routing_factory,
)
from maze_pl.envs.vehicle_routing.savings import Savings
from tests.envs.vehicle_routing.reference import SQUARE, drawn, straight

LINKED, IN_ROUTE = 18, 19
SHAPES = tuple(tenths / 10 for tenths in range(8, 17))


def slowly_merged(
    instance: RoutingInstance, unserved: set[int], begun: dict[int, int], shape: float = 1.0
) -> list[tuple[int, ...]]:
    """Merge the best pair of ends again and again, looking at all pairs of routes each time."""
    routes = [(node,) for node in sorted([*unserved, *begun])]

    def load(route: tuple[int, ...]) -> int:
        return sum(instance.capacity - begun[node] if node in begun else int(instance.demands[node]) for node in route)

    def saved(i: int, j: int) -> float:
        return straight(instance, i, 0) + straight(instance, 0, j) - shape * straight(instance, i, j)

    while True:
        best: Any = None
        for one, other in combinations(routes, 2):
            if load(one) + load(other) > instance.capacity:
                continue
            for left, right in ((one, other), (one, other[::-1]), (one[::-1], other), (one[::-1], other[::-1])):
                if right[0] in begun or any(node in begun for node in (*left[1:], *right)):
                    continue  # vehicles are at the beginning of their routes
                saving = saved(left[-1], right[0])
                if saving > 1e-12 and (best is None or saving > best[0] + 1e-12):
                    best = saving, one, other, left + right
            for left, right in ((other, one), (other, one[::-1])):
                if other[0] in begun and not any(node in begun for node in one):
                    saving = saved(left[-1], right[0])
                    if saving > 1e-12 and (best is None or saving > best[0] + 1e-12):
                        best = saving, one, other, left + right
        if best is None:
            return routes
        _, one, other, joined = best
        routes = [route for route in routes if route not in (one, other)] + [joined]


def slowly_planned(
    instance: RoutingInstance, unserved: set[int], begun: dict[int, int], shapes: tuple[float, ...] = SHAPES
) -> tuple[set[tuple[int, ...]], float]:
    """Routes of several shapes, improved by the best reversals; the shortest ones, and their shape."""
    best: Any = np.inf, set(), 1.0
    for shape in shapes:
        routes = []
        total = 0.0
        for route in slowly_merged(instance, unserved, begun, shape):
            path = (*route, 0) if route[0] in begun else (0, *route, 0)
            while True:
                ends = [(i, j) for i in range(1, len(path) - 2) for j in range(i + 2, len(path))]
                turned = [path[:i] + path[i:j][::-1] + path[j:] for i, j in ends]
                shorter = min(turned, key=lambda nodes: length(instance, nodes), default=path)
                if length(instance, shorter) >= length(instance, path) - 1e-9:
                    break
                path = shorter
            total += length(instance, path)
            routes.append(tuple(node for node in path if node))
        if total < best[0] - 1e-9:
            best = total, directions(routes, begun), shape
    return best[1:]


def length(instance: RoutingInstance, path: tuple[int, ...]) -> float:
    """Length of a path."""
    return sum(straight(instance, i, j) for i, j in pairwise(path))


def directions(routes: Any, begun: Any = ()) -> set[tuple[int, ...]]:
    """Routes without a direction, except for those of vehicles."""
    return {tuple(route) if route[0] in begun else min(tuple(route), tuple(route[::-1])) for route in routes}


@pytest.mark.parametrize("seed", range(8))
def test_begun_routes_are_merged_as_by_a_slow_reference(seed: int) -> None:
    instance = drawn("random(10)", seed)
    generator = np.random.default_rng(seed)
    nodes = generator.permutation(np.arange(1, 11)).tolist()
    begun = {node: int(generator.integers(1, 15)) for node in nodes[: seed % 4]}
    unserved = sorted(nodes[seed % 4 + 1 :])
    savings = Savings(instance.distances, instance.demands, instance.capacity, np.array(unserved), begun)
    routes = savings.routes()
    assert directions(routes, begun) == directions(slowly_merged(instance, set(unserved), begun), begun)
    assert sorted(node for route in routes for node in route) == sorted([*unserved, *begun])


def test_observations_by_hand() -> None:
    env = vehicle_routing_factory([SQUARE], advised=True)
    assert savings_routes(SQUARE).routes == [[1, 2], [3], [4]]
    observation, _ = env.reset(seed=0)
    assert observation["options"].shape == (5, 20)
    assert observation["options"][:, LINKED].tolist() == [0, 1, 1, 1, 1]  # all customers are ends of routes
    assert observation["options"][:, IN_ROUTE].tolist() == [0, 0, 0, 0, 0]  # the depot is in none
    observation, *_ = env.step({"option": 1})
    assert observation["options"][:, LINKED].tolist() == [0, 0, 1, 0, 0]  # on to the second customer
    assert observation["options"][:, IN_ROUTE].tolist() == [0, 0, 1, 0, 0]
    observation, *_ = env.step({"option": 2})  # nothing else fits: the vehicle returns
    assert observation["options"][:, LINKED].tolist() == [0, 0, 0, 1, 1]


def test_leaving_the_routes_plans_them_again_by_hand() -> None:
    env = vehicle_routing_factory([SQUARE], advised=True)
    env.reset(seed=0)
    env.step({"option": 1})
    observation, *_ = env.step({"option": 3})  # instead of 2; then the vehicle is empty, and returns
    assert env.get_maze_state().position.tolist() == [0]
    assert observation["options"][:, LINKED].tolist() == [0, 0, 1, 0, 1]  # 2 and 4 have become one route
    observation, *_ = env.step({"option": 2})
    assert observation["options"][:, LINKED].tolist() == [0, 0, 0, 0, 1]
    assert observation["options"][:, IN_ROUTE].tolist() == [0, 0, 0, 0, 1]


def test_other_numbers_are_those_without_advice() -> None:
    advised, _ = vehicle_routing_factory(["random(10)"], advised=True).reset(seed=3)
    without, _ = vehicle_routing_factory(["random(10)"]).reset(seed=3)
    np.testing.assert_array_equal(advised["options"][:, :18], without["options"])


@pytest.mark.parametrize("n_vehicles", [1, 3])
def test_links_and_routes_equal_a_slow_reference(n_vehicles: int) -> None:
    instance = drawn("random(10)", 3)
    env = vehicle_routing_factory([instance], n_vehicles=n_vehicles, advised=True)
    generator = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    planned, shape = slowly_planned(instance, set(range(1, 11)), {})
    assert planned == directions(improved_savings_routes(instance).routes)
    terminated = False
    n_left = 0
    n_routes = 0
    while not terminated:
        state = env.get_maze_state()
        options = observation["options"].reshape(n_vehicles, 11, 20)
        exists = observation["exists"].reshape(n_vehicles, 11)
        places = [place for place in state.position.tolist() if place]
        for vehicle, x in enumerate(state.position.tolist()):
            for j in np.flatnonzero(exists[vehicle]).tolist():
                ends = {stop for route in planned if route[0] not in places for stop in (route[0], route[-1])}
                links = {pair for route in planned for pair in pairwise([*route, 0])}
                is_linked = (x, j) in links if x else j in ends
                assert options[vehicle, j, LINKED] == is_linked
                is_in_route = any(x in route and j in route for route in planned)
                assert options[vehicle, j, IN_ROUTE] == is_in_route
        option = int(generator.choice(np.flatnonzero(observation["option_mask"])))
        vehicle, node = divmod(option, 11)
        follows = bool(options[vehicle, node, LINKED])
        origin = int(state.position[vehicle])
        observation, _, terminated, _, _ = env.step({"option": option})
        state = env.get_maze_state()
        unserved = set(np.flatnonzero(state.unserved).tolist())
        places = [place for place in state.position.tolist() if place]
        if follows and state.n_routes == n_routes:
            planned = after_following(planned, origin, node, unserved, set(places))
        else:
            n_left += not follows
            shapes = (shape,) if state.n_routes == n_routes else SHAPES
            n_routes = state.n_routes
            positions = state.position.tolist()
            begun = {p: int(room) for p, room in zip(positions, state.remaining.tolist(), strict=True) if p}
            planned, shape = slowly_planned(instance, unserved, begun, shapes)
    assert n_left > 3


def after_following(
    planned: set[tuple[int, ...]], origin: int, node: int, unserved: set[int], places: set[int]
) -> set[tuple[int, ...]]:
    """Routes that remain after a vehicle has driven from `origin` to `node` along them."""
    remaining = set()
    for route in planned:
        if node and node in route and route[0] != node and (origin == 0 or route[0] != origin):
            route = route[::-1]
        kept = tuple(stop for stop in route if stop in unserved or stop in places)
        if kept:
            remaining.add(kept)
    return directions(remaining, places)


def followed(env: Any, seed: int) -> float:
    """Distance of an episode that goes along links."""
    observation, _ = env.reset(seed=seed)
    terminated = False
    while not terminated:
        allowed = observation["option_mask"] * (1 + observation["options"][:, LINKED])
        observation, _, terminated, _, _ = env.step({"option": int(allowed.argmax())})
    return float(env.get_maze_state().length)


@pytest.mark.parametrize("seed", range(4))
def test_following_the_links_is_never_longer_than_the_first_plan(seed: int) -> None:
    env = vehicle_routing_factory(["random(20)"], advised=True)
    assert followed(env, seed) <= improved_savings_routes(drawn("random(20)", seed)).distance + 1e-9


def test_plans_after_a_return_can_be_shorter_than_the_first_one() -> None:
    env = vehicle_routing_factory(["random(50)"], advised=True)
    planned = [improved_savings_routes(drawn("random(50)", seed)).distance for seed in range(4)]
    driven = [followed(env, seed) for seed in range(4)]
    assert min(np.subtract(driven, planned)) < -0.01


def test_states_are_restored_with_their_routes() -> None:
    env = StructuredVehicleRoutingArrayEnvironment(["random(10)"], advised=True)
    env.allocate(2)
    env.reset(np.arange(2), np.array([1, 2]))
    other = StructuredVehicleRoutingArrayEnvironment(["random(10)"], advised=True)
    other.allocate(2)
    other.reset(np.arange(2), np.array([7, 8]))
    assert (env.simulation.links != other.simulation.links).any()
    other.load_state_dict(env.state_dict())
    np.testing.assert_array_equal(env.simulation.links, other.simulation.links)
    np.testing.assert_array_equal(env.simulation.route_of, other.simulation.route_of)
    np.testing.assert_array_equal(env.simulation.shape, other.simulation.shape)
    assert env.maze_state(1).links.tolist() == env.simulation.links[1].tolist()


def test_a_copy_of_an_environment_plans_as_the_original_does() -> None:
    env, copied = (vehicle_routing_factory(["random(10)"], advised=True) for _ in range(2))
    env.reset(seed=1)
    env.step({"option": 4})
    copied.reset(seed=2)
    copied.clone_from(env)
    for option in (7, 2):
        observation, *_ = env.step({"option": option})
        of_copy, *_ = copied.step({"option": option})
        np.testing.assert_array_equal(observation["options"], of_copy["options"])


def test_without_advice_nothing_is_planned() -> None:
    env = VehicleRoutingArrayEnvironment(["random(10)"])
    env.allocate(2)
    env.reset(np.arange(2), np.arange(2))
    assert (env.simulation.links == -1).all()
    assert env.observation_spaces_dict[0]["options"].shape == (11, 18)
