"""Vehicle routing over arrays, number for number against environments of single episodes."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.envs import WeightedRewardAggregator
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.vehicle_routing import (
    DistanceRewardAggregator,
    InstanceSource,
    RandomInstances,
    RoutingInstance,
    StructuredVehicleRoutingArrayEnvironment,
    TotalDistanceRewardAggregator,
    VehicleRoutingArrayEnvironment,
    structured_vehicle_routing_factory,
    vehicle_routing_factory,
)
from maze_pl.envs.vehicle_routing.instance_source import draw_many, draw_one
from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.envs.vehicle_routing.reference import SQUARE

ARRAYS: dict[str, Any] = {
    "flat": VehicleRoutingArrayEnvironment,
    "structured": StructuredVehicleRoutingArrayEnvironment,
}
SINGLE: dict[str, Any] = {"flat": vehicle_routing_factory, "structured": structured_vehicle_routing_factory}
INSTANCES: list[Any] = [
    ["random(10)"],
    ["random(2-7, capacity=9)"],
    [SQUARE, "random(3-5, capacity=12)", "random(10)"],
]
every_form = pytest.mark.parametrize("form", list(ARRAYS))


def pair_of(form: str, instances: Any, n_vehicles: int, n_envs: int, seed: int, **options: Any) -> PairOfForms:
    settings_of_both = {"instances": instances, "n_vehicles": n_vehicles, "advised": options.pop("advised", False)}
    rewards = options.pop("reward_aggregator", None)
    arrays = ARRAYS[form](**settings_of_both, reward_aggregator=copy.deepcopy(rewards))

    def single() -> Any:
        return SINGLE[form](**settings_of_both, reward_aggregator=copy.deepcopy(rewards))

    return PairOfForms(arrays, single, n_envs, seed, **options)


@every_form
@pytest.mark.parametrize("n_vehicles", [1, 3])
@pytest.mark.parametrize("instances", INSTANCES, ids=range(3))
def test_arrays_equal_single_episodes(form: str, n_vehicles: int, instances: Any) -> None:
    pair = pair_of(form, instances, n_vehicles, 3, seed=5)
    pair.play(60)
    assert pair.n_ended


CASES = st.fixed_dictionaries(
    {
        "form": st.sampled_from(list(ARRAYS)),
        "n_customers": st.tuples(st.integers(1, 6), st.integers(0, 4)),
        "capacity": st.integers(4, 15),
        "n_vehicles": st.integers(1, 4),
        "advised": st.booleans(),
        "seed": st.integers(0, 2**32),
    }
)


def check_generated(case: dict[str, Any]) -> None:
    low, more = case["n_customers"]
    source = RandomInstances((low, low + more), case["capacity"], (1, 4))
    pair_of(case["form"], [source], case["n_vehicles"], 3, case["seed"], advised=case["advised"]).play(30)


@settings(max_examples=8, deadline=None)
@given(CASES)
def test_generated_instances_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(CASES)
def test_500_generated_instances_equal_single_episodes(case: dict[str, Any]) -> None:
    check_generated(case)


@every_form
@pytest.mark.parametrize("n_vehicles", [1, 3])
def test_advice_is_equal_in_arrays(form: str, n_vehicles: int) -> None:
    pair = pair_of(form, [SQUARE, "random(3-5, capacity=12)", "random(10)"], n_vehicles, 3, seed=5, advised=True)
    pair.play(60)
    assert pair.n_ended


@every_form
@pytest.mark.parametrize("aggregator", [DistanceRewardAggregator(True), TotalDistanceRewardAggregator()])
def test_other_rewards_are_equal_in_arrays(form: str, aggregator: Any) -> None:
    pair_of(form, ["random(10)"], 2, 2, 4, reward_aggregator=aggregator).play(50)


@every_form
def test_saved_arrays_continue_as_they_were(form: str) -> None:
    pair = pair_of(form, INSTANCES[1], 2, 3, seed=1)
    pair.play(11)
    copied = ARRAYS[form](INSTANCES[1], n_vehicles=2)
    copied.allocate(3)
    copied.load_state_dict(copy.deepcopy(pair.arrays.state_dict()))
    pair.arrays = copied
    pair.play(20)


def test_the_state_of_one_environment_is_that_of_the_simulation() -> None:
    pair = pair_of("flat", INSTANCES[2], 2, 3, seed=3)
    pair.play(6)
    for n in range(3):
        ours = pair.arrays.maze_state(n)
        theirs = pair.singles[n].get_maze_state()
        assert (ours.instance.name, ours.routes, ours.length) == (theirs.instance.name, theirs.routes, theirs.length)
        assert (ours.instance.distances == theirs.instance.distances).all()
        assert (ours.allowed == theirs.allowed).all()
        assert ours.instance.best_known == theirs.instance.best_known


class _Line(InstanceSource):
    """Draws customers on a line, without an array form."""

    max_customers = 4

    def draw(self, generator: np.random.Generator) -> RoutingInstance:
        places = np.cumsum(generator.integers(1, 5, 5))
        return RoutingInstance("line", np.stack([places, 0 * places], axis=1), [0, 1, 1, 1, 1], 3)


def test_sources_without_an_array_form_are_drawn_one_after_the_other() -> None:
    sources: list[InstanceSource] = [_Line(), RandomInstances((2, 6), 9)]
    seeds = np.arange(40)
    drawn, _ = draw_many(sources, RandomStreams(seeds), seeds, 6)
    for seed in seeds.tolist():
        expected = draw_one(sources, np.random.default_rng(seed))
        n_nodes = expected.n_customers + 1
        assert drawn.n_customers[seed] == expected.n_customers
        assert (drawn.distances[seed, :n_nodes, :n_nodes] == expected.distances).all()
        assert (drawn.demands[seed, :n_nodes] == expected.demands).all()
        assert drawn.scale[seed] == expected.scale


class _Published(_Line):
    """Draws customers on a line, with a best known distance of each instance."""

    def draw(self, generator: np.random.Generator) -> RoutingInstance:
        return replace(super().draw(generator), best_known=float(generator.integers(5, 30)))


@every_form
def test_best_known_distances_of_drawn_instances_are_equal_in_arrays(form: str) -> None:
    pair = pair_of(form, [_Published(), "random(2-4, capacity=9)"], 2, 6, seed=0)
    pair.play(60)
    instances = [pair.arrays.maze_state(n).instance for n in range(6)]
    assert len({instance.best_known for instance in instances}) > 2
    for single, instance in zip(pair.singles, instances, strict=True):
        assert instance.best_known == single.get_maze_state().instance.best_known


def test_a_state_of_an_earlier_version_has_no_best_known_distances() -> None:
    pair = pair_of("flat", [SQUARE], 1, 2, seed=0)
    pair.play(2)
    state = pair.arrays.state_dict()
    del state["instances_best_known"]
    copied = VehicleRoutingArrayEnvironment([SQUARE])
    copied.allocate(2)
    copied.load_state_dict(state)
    assert np.isnan(copied.state_dict()["instances_best_known"]).all()


def test_an_aggregator_without_an_array_form_is_refused() -> None:
    weighted: Any = WeightedRewardAggregator({"distance": DistanceRewardAggregator()})
    with pytest.raises(TypeError, match="WeightedRewardAggregator has no array form; derive it from RoutingReward"):
        VehicleRoutingArrayEnvironment([SQUARE], reward_aggregator=weighted)


def test_wrong_options_are_refused_as_in_single_episodes() -> None:
    for form in (VehicleRoutingArrayEnvironment, partial(vehicle_routing_factory)):
        with pytest.raises(ValueError, match="max_customers=5 is less than the 10 of the largest instance"):
            form(["random(10)"], max_customers=5)
        with pytest.raises(ValueError, match="n_vehicles=0 must be at least 1"):
            form(["random(10)"], n_vehicles=0)
