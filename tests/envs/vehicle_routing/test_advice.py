"""Routes of rules that observations show."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.vehicle_routing import (
    StructuredVehicleRoutingArrayEnvironment,
    VehicleRoutingArrayEnvironment,
    advice,
    savings_routes,
    sweep_routes,
    vehicle_routing_factory,
)
from tests.envs.vehicle_routing.reference import FACTORIES, SQUARE, drawn

RULES: Any = {"savings": savings_routes, "sweep": sweep_routes}
LINKED, IN_ROUTE = 18, 19


def test_observations_by_hand() -> None:
    env = vehicle_routing_factory([SQUARE], advice="savings")
    assert savings_routes(SQUARE).routes == [[1, 2], [3], [4]]
    observation, _ = env.reset(seed=0)
    assert observation["options"].shape == (5, 20)
    assert observation["options"][:, LINKED].tolist() == [0, 1, 1, 1, 1]  # all customers are ends of routes
    assert observation["options"][:, IN_ROUTE].tolist() == [0, 0, 0, 0, 0]  # the depot is in none
    observation, *_ = env.step({"option": 1})
    assert observation["options"][:, LINKED].tolist() == [1, 0, 1, 0, 0]  # back, or on to the second customer
    assert observation["options"][:, IN_ROUTE].tolist() == [0, 0, 1, 0, 0]
    without, _ = vehicle_routing_factory([SQUARE]).reset(seed=0)
    advised, _ = env.reset(seed=0)
    np.testing.assert_array_equal(advised["options"][:, :18], without["options"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_vehicles", [1, 3])
def test_links_and_routes_equal_a_slow_reference(rule: str, n_vehicles: int) -> None:
    instance = drawn("random(10)", 3)
    routes = RULES[rule](instance).routes
    links = {pair for route in routes for pair in pairwise([0, *route, 0])}
    env = vehicle_routing_factory([instance], n_vehicles=n_vehicles, advice=rule)
    generator = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    terminated = False
    n_linked = 0
    while not terminated:
        state = env.get_maze_state()
        options = observation["options"].reshape(n_vehicles, 11, 20)
        exists = observation["exists"].reshape(n_vehicles, 11)
        for vehicle, x in enumerate(state.position.tolist()):
            for j in np.flatnonzero(exists[vehicle]).tolist():
                is_linked = (x, j) in links or (j, x) in links
                is_in_route = any(x in route and j in route for route in routes)
                assert options[vehicle, j, LINKED] == is_linked
                assert options[vehicle, j, IN_ROUTE] == is_in_route
                n_linked += is_linked
        option = int(generator.choice(np.flatnonzero(observation["option_mask"])))
        observation, _, terminated, _, _ = env.step({"option": option})
    assert n_linked > 10


def followed(env: Any, seed: int) -> float:
    """Distance of an episode that goes along links, to customers first."""
    observation, _ = env.reset(seed=seed)
    terminated = False
    while not terminated:
        score = observation["options"][:, LINKED] * 2.0
        score[0] -= 1
        option = int(np.where(observation["option_mask"] > 0, score, -np.inf).argmax())
        observation, _, terminated, _, _ = env.step({"option": option})
    return float(env.get_maze_state().length)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_follows_the_links_drives_the_routes_of_the_rule(rule: str, seed: int) -> None:
    env = vehicle_routing_factory(["random(20)"], advice=rule)
    assert followed(env, seed) == pytest.approx(RULES[rule](drawn("random(20)", seed)).distance)


def test_advice_is_computed_once_for_equal_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(instance: Any) -> Any:
        calls.append(instance)
        return savings_routes(instance)

    monkeypatch.setitem(advice.ADVICE, "savings", counted)
    env = VehicleRoutingArrayEnvironment(["random(10)"], advice="savings")
    env.allocate(6)
    calls.clear()
    env.reset(np.arange(6), np.array([3, 3, 3, 4, 4, 3]))
    assert len(calls) == 2
    links = env.simulation.instances.links
    assert (links[0] == links[5]).all()
    assert (links[0] != links[3]).any()


def test_states_are_restored_with_their_advice() -> None:
    env = StructuredVehicleRoutingArrayEnvironment(["random(10)"], advice="savings")
    env.allocate(2)
    env.reset(np.arange(2), np.array([1, 2]))
    other = StructuredVehicleRoutingArrayEnvironment(["random(10)"], advice="savings")
    other.allocate(2)
    other.reset(np.arange(2), np.array([7, 8]))
    other.load_state_dict(env.state_dict())
    for name in ("links", "route_of"):
        one, two = (getattr(some.simulation.instances, name) for some in (env, other))
        np.testing.assert_array_equal(one, two)
    assert env.maze_state(1).arrays.links.tolist() == env.simulation.instances.links[1:2].tolist()


@pytest.mark.parametrize("form", [*FACTORIES, VehicleRoutingArrayEnvironment, StructuredVehicleRoutingArrayEnvironment])
def test_unknown_rules_are_refused(form: Any) -> None:
    make = FACTORIES.get(form, form)
    with pytest.raises(ValueError, match=r"advice='saving' is unknown; expected savings, sweep or null"):
        make(["random(10)"], advice="saving")
