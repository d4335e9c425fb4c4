"""Rules: routes by hand, independent references, and how policies follow them."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch
from maze_pl.envs.vehicle_routing import (
    RoutingInstance,
    StructuredVehicleRoutingArrayEnvironment,
    VehicleRoutingArrayEnvironment,
    check_routes,
    improved_savings_routes,
    route_distance,
    savings_routes,
    structured_vehicle_routing_factory,
    sweep_routes,
    vehicle_routing_factory,
)
from maze_pl.envs.vehicle_routing.improved_savings_policy import ImprovedSavingsPolicy
from maze_pl.envs.vehicle_routing.nearest_neighbour_policy import NearestNeighbourPolicy
from maze_pl.envs.vehicle_routing.savings_policy import SavingsPolicy
from maze_pl.envs.vehicle_routing.sweep_policy import SweepPolicy
from maze_pl.envs.vehicle_routing.two_opt import two_opt
from maze_pl.runs.rollout import rollout
from tests.envs.vehicle_routing.reference import (
    FACTORIES,
    SQUARE,
    SlowRouting,
    drawn,
    length_of,
    play,
    shortest_routes,
    step_arrays,
    straight,
)

POLICIES = [NearestNeighbourPolicy, SavingsPolicy, ImprovedSavingsPolicy, SweepPolicy]


def test_routes_by_hand() -> None:
    # savings: 4 + 5 - 3 = 6 for (1, 2), 5 + 3 - 4 = 4 for (2, 3), 4 + 3 - 5 = 2 for (1, 3); 4 fits with 2 only
    assert savings_routes(SQUARE).routes == [[1, 2], [3], [4]]
    env = vehicle_routing_factory([SQUARE])
    play(env, NearestNeighbourPolicy(env.action_spaces_dict))
    assert env.get_maze_state().routes == [[4, 2], [3, 1]]
    # by angle: 4 (-90 degrees), 1 (0), 2 (37), 3 (90); from 1: [1, 2], [3], [4], and back: [1], [4], ...
    assert sweep_routes(SQUARE).distance == 12 + 6 + 4


def slow_savings(instance: RoutingInstance, shape: float = 1.0) -> list[list[int]]:
    """Clarke and Wright's savings, with routes as lists that are searched for each pair."""
    routes = [[customer] for customer in range(1, instance.n_customers + 1)]
    pairs = []
    for i in range(1, instance.n_customers + 1):
        for j in range(i + 1, instance.n_customers + 1):
            saving = instance.distances[i, 0] + instance.distances[0, j] - shape * instance.distances[i, j]
            pairs.append((-saving, i, j))
    for saving, i, j in sorted(pairs):
        (first,) = [route for route in routes if i in route]
        (second,) = [route for route in routes if j in route]
        demand = instance.demands[first].sum() + instance.demands[second].sum()
        if saving >= 0 or first is second or demand > instance.capacity:
            continue
        if i not in (first[0], first[-1]) or j not in (second[0], second[-1]):
            continue
        routes.remove(first)
        routes.remove(second)
        ahead = first if first[-1] == i else first[::-1]
        routes.append(ahead + (second if second[0] == j else second[::-1]))
    return routes


def test_savings_equal_a_slow_reference() -> None:
    for seed in range(6):
        instance = drawn("random(20)", seed)
        expected = {min(tuple(route), tuple(route[::-1])) for route in slow_savings(instance)}
        found = savings_routes(instance).routes
        assert {min(tuple(route), tuple(route[::-1])) for route in found} == expected


def test_improved_savings_equal_a_slow_reference() -> None:
    for seed in range(6):
        instance = drawn("random(20)", seed)
        distances = []
        for tenths in range(8, 17):
            routes = slow_savings(instance, tenths / 10)
            distances.append(sum(length_of(instance, [slow_two_opt(instance, route)]) for route in routes))
        found = improved_savings_routes(instance)
        assert found.distance == pytest.approx(min(distances))
        assert found.distance <= savings_routes(instance).distance


def slow_two_opt(instance: RoutingInstance, route: list[int]) -> list[int]:
    """The shortest route that one reversal makes, again and again."""
    while True:
        ends = [(i, j) for i in range(len(route)) for j in range(i + 2, len(route) + 1)]
        turned = [route[:i] + route[i:j][::-1] + route[j:] for i, j in ends]
        best = min(turned, key=lambda path: length_of(instance, [path]), default=route)
        if length_of(instance, [best]) >= length_of(instance, [route]) - 1e-9:
            return route
        route = best


def test_a_begun_path_keeps_its_first_node() -> None:
    # from 2, the way over 1 and 3 is 3 + 5 + 3, the way over 3 and 1 is 4 + 5 + 4
    assert two_opt(SQUARE.distances, [2, 3, 1, 0]) == [2, 1, 3, 0]


def test_two_opt_removes_crossings_and_keeps_what_is_optimal() -> None:
    assert length_of(SQUARE, [two_opt(SQUARE.distances, [0, 2, 1, 3, 0])[1:-1]]) == 4 + 3 + 4 + 3
    for seed in range(4):
        instance = drawn("random(6, capacity=60)", seed)
        for start in ([1, 2, 3, 4, 5, 6], [3, 1, 5, 2, 6, 4]):
            depot, *route, end = two_opt(instance.distances, [0, *start, 0])
            assert depot == end == 0
            assert sorted(route) == [1, 2, 3, 4, 5, 6]
            length = route_distance(instance, route)
            assert length <= route_distance(instance, start) + 1e-12
            for i in range(6):
                for j in range(i + 1, 7):
                    turned = route[:i] + route[i:j][::-1] + route[j:]
                    assert route_distance(instance, turned) >= length - 1e-9


def slow_sweep(instance: RoutingInstance) -> float:
    """The shortest division of the customers in the order of their angles, with optimal orders of each route."""
    centre = instance.coordinates[0]
    angles = {c: np.arctan2(*(instance.coordinates[c] - centre)[::-1]) for c in range(1, instance.n_customers + 1)}
    order = sorted(angles, key=lambda c: angles[c])
    best = np.inf
    for turned in (order, order[::-1]):
        for start in range(len(order)):
            clusters: list[list[int]] = []
            load = instance.capacity + 1
            for customer in turned[start:] + turned[:start]:
                load += int(instance.demands[customer])
                if load > instance.capacity:
                    clusters.append([])
                    load = int(instance.demands[customer])
                clusters[-1].append(customer)
            lengths = [min(length_of(instance, [list(o)]) for o in permutations(cluster)) for cluster in clusters]
            best = min(best, sum(lengths))
    return float(best)


@pytest.mark.slow
def test_sweeps_of_small_instances_equal_a_slow_reference() -> None:
    for seed in range(5):
        instance = drawn("random(8, capacity=18)", seed)
        found = sweep_routes(instance).distance
        assert found >= slow_sweep(instance) - 1e-9
        assert found <= slow_sweep(instance) * 1.001  # routes of a few customers are optimal after 2-opt


def test_no_rule_is_better_than_the_optimum() -> None:
    for seed in range(4):
        instance = drawn("random(6, capacity=14)", seed)
        shortest = shortest_routes(instance)
        for rule in (savings_routes, improved_savings_routes, sweep_routes):
            solution = rule(instance)
            assert solution.distance >= shortest - 1e-9
            assert solution.distance == pytest.approx(length_of(instance, solution.routes))


def test_the_nearest_neighbour_equals_a_slow_reference() -> None:
    for seed in range(4):
        instance = drawn("random(20)", seed)
        env = vehicle_routing_factory([instance])
        play(env, NearestNeighbourPolicy(env.action_spaces_dict))
        left = set(range(1, 21))
        routes: list[list[int]] = []
        while left:
            node, load = 0, 0
            routes.append([])
            while fitting := [c for c in left if load + instance.demands[c] <= instance.capacity]:
                node = min(fitting, key=lambda c: straight(instance, node, c))
                routes[-1].append(node)
                load += int(instance.demands[node])
                left.remove(node)
        assert env.get_maze_state().routes == routes


@pytest.mark.parametrize("form", list(FACTORIES))
@pytest.mark.parametrize(
    ("policy_class", "plan"),
    [
        (SavingsPolicy, savings_routes),
        (ImprovedSavingsPolicy, improved_savings_routes),
        (SweepPolicy, sweep_routes),
    ],
)
def test_policies_drive_the_planned_routes(form: str, policy_class: Any, plan: Any) -> None:
    for seed in range(3):
        instance = drawn("random(20)", seed)
        env = FACTORIES[form]([instance])
        rewards = play(env, policy_class(env.action_spaces_dict))
        solution = plan(instance)
        assert -sum(rewards) == pytest.approx(solution.distance)
        assert sorted(env.get_maze_state().routes) == sorted(solution.routes)


def test_off_its_routes_a_policy_goes_on() -> None:
    instance = drawn("random(20)", 0)
    for first in range(1, 21, 4):
        env = vehicle_routing_factory([instance], n_vehicles=2)
        policy = SavingsPolicy(env.action_spaces_dict)
        env.reset(seed=0)
        env.step({"option": first})
        env.step({"option": 21 + 1 + first % 20})
        terminated = False
        while not terminated:
            vehicle, node = policy.choose(env.get_maze_state())
            *_, terminated, _, info = env.step({"option": vehicle * 21 + node})
            assert not info
        check_routes(instance, env.get_maze_state().routes)


def nearest(slow: SlowRouting, vehicle: int) -> int:
    """The nearest customer that a vehicle can serve."""
    place = (slow.open[vehicle] or [0])[-1]
    return min(slow.fitting(vehicle), key=lambda customer: straight(slow.instance, place, customer))


def next_of_savings(slow: SlowRouting, vehicle: int) -> int:
    """The next node of a vehicle on its planned route, or the first one of a route that no other vehicle is on."""
    place = (slow.open[vehicle] or [0])[-1]
    planned = 0 if place else -1
    for route in savings_routes(slow.instance).routes:
        unserved = [customer for customer in route if customer in slow.unserved()]
        if place in route:
            unserved = [customer for customer in unserved if route.index(customer) > route.index(place)]
        elif place or any(path and path[-1] in route for path in slow.open):
            continue
        if unserved:
            planned = unserved[0]
            break
    is_possible = planned in slow.fitting(vehicle) or (planned == 0 and place)
    return planned if is_possible else nearest(slow, vehicle)


@pytest.mark.parametrize(
    ("policy_class", "expected"), [(NearestNeighbourPolicy, nearest), (SavingsPolicy, next_of_savings)]
)
def test_as_second_actor_a_rule_moves_the_chosen_vehicle(policy_class: Any, expected: Any) -> None:
    instance = drawn("random(15, capacity=25)", 2)
    single = structured_vehicle_routing_factory([instance], n_vehicles=3)
    arrays = StructuredVehicleRoutingArrayEnvironment([instance], n_vehicles=3)
    arrays.allocate(1)
    policy = policy_class(single.action_spaces_dict)
    random = np.random.default_rng(0)
    for episode in range(4):
        observation, _ = single.reset(seed=episode)
        arrays.reset(np.zeros(1, np.int64), np.array([episode]))
        slow = SlowRouting(instance, 3)
        while slow.unserved():
            vehicle = int(random.choice(np.flatnonzero(observation["vehicle_mask"])))
            observation, *_ = single.step({"vehicle": vehicle})
            arrays.step({0: {"vehicle": np.array([vehicle])}}, slice(None))
            states = [single.get_simulation_state(), arrays.maze_state(0)]
            nodes = policy.act(PolicyBatch(1, {}, np.zeros(2), maze_state=states)).action["node"]
            assert nodes[0] == nodes[1]
            assert observation["node_mask"][nodes[0]]
            assert nodes[0] == expected(slow, vehicle)
            slow.move(vehicle, int(nodes[0]))
            observation, *_, info = single.step({"node": int(nodes[0])})
            assert not info
            arrays.step({1: {"node": nodes[1:]}}, slice(None))


@pytest.mark.parametrize("policy_class", [NearestNeighbourPolicy, SavingsPolicy])
def test_as_second_actor_a_rule_plays_on_if_the_chosen_vehicle_may_not_move(policy_class: Any) -> None:
    env = structured_vehicle_routing_factory([SQUARE], n_vehicles=3)
    env.reset(seed=0)
    env.step({"vehicle": 2})  # all are at the depot: only the first one may leave
    policy = policy_class(env.action_spaces_dict)
    batch = PolicyBatch(1, {}, np.zeros(1), maze_state=[env.get_simulation_state()])
    *_, info = env.step({"node": int(policy.act(batch).action["node"][0])})
    assert info == {"error": "move_not_allowed"}


class _CountingPolicy(SavingsPolicy):
    """Notes the instances whose routes are planned."""

    def __init__(self, action_spaces_dict: Any) -> None:
        super().__init__(action_spaces_dict)
        self.planned: list[RoutingInstance] = []

    def plan(self, instance: RoutingInstance) -> list[list[int]]:
        self.planned.append(instance)
        return super().plan(instance)


def test_in_arrays_the_routes_of_each_instance_are_planned_once() -> None:
    n_envs = 70
    arrays = VehicleRoutingArrayEnvironment(["random(5, capacity=12)"])
    arrays.allocate(n_envs)
    arrays.reset(np.arange(n_envs), np.arange(n_envs))
    policy = _CountingPolicy(arrays.action_spaces_dict)
    for _ in range(3):
        assert not step_arrays(arrays, policy)
    assert len(policy.planned) == n_envs
    resumed = VehicleRoutingArrayEnvironment(["random(5, capacity=12)"])
    resumed.allocate(n_envs)
    resumed.reset(np.arange(n_envs), np.arange(n_envs) + 1000)
    assert resumed.maze_state(0).instance.content != arrays.maze_state(0).instance.content
    resumed.load_state_dict(copy.deepcopy(arrays.state_dict()))
    while not step_arrays(resumed, policy):
        pass
    assert len(policy.planned) == n_envs
    for n, instance in enumerate(policy.planned):
        state = resumed.maze_state(n)
        assert state.instance.content == instance.content
        if state.is_complete:
            assert state.length == pytest.approx(savings_routes(instance).distance)
    resumed.reset(np.array([4, 9]), np.array([2000, 2001]))
    for n in (4, 9):
        policy.choose(resumed.maze_state(n))
    assert len(policy.planned) == n_envs + 2


def test_batches_without_states_are_refused() -> None:
    env = vehicle_routing_factory(["random(10)"])
    with pytest.raises(ValueError, match="needs the states of the simulation"):
        NearestNeighbourPolicy(env.action_spaces_dict).act(PolicyBatch(0, {}, np.zeros(1)))


def test_heads_of_another_size_are_refused() -> None:
    env, other = (vehicle_routing_factory(["random(10)"], n_vehicles=n) for n in (3, 2))
    env.reset(seed=0)
    batch = PolicyBatch(0, {}, np.zeros(1), maze_state=[env.get_simulation_state()])
    with pytest.raises(ValueError, match="NearestNeighbourPolicy gives actions of"):
        NearestNeighbourPolicy(other.action_spaces_dict).act(batch)


def test_the_heuristic_of_both_forms_plays_the_same_episodes() -> None:
    flat = rollout(lambda: vehicle_routing_factory(["random(10)"]), "heuristic", episodes=3)
    structured = rollout(lambda: structured_vehicle_routing_factory(["random(10)"]), "heuristic", episodes=3)
    assert [one.summary.reward for one in flat] == pytest.approx([one.summary.reward for one in structured])
