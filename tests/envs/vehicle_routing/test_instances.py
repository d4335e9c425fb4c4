"""Instances, random ones, and their descriptions."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.envs.vehicle_routing import (
    FixedInstance,
    InstanceArrays,
    RandomInstances,
    RoutingInstance,
    instance_sources,
)
from tests.envs.vehicle_routing.reference import SQUARE, drawn, shortest_routes, straight


def test_an_instance_computes_distances_and_bounds() -> None:
    assert SQUARE.distances[0].tolist() == [0, 4, 5, 3, 2]
    assert (SQUARE.n_customers, SQUARE.n_vehicles_bound) == (4, 2)
    assert SQUARE.bound == 2 * (2 * 4 + 5 + 2 * 3 + 3 * 2) / 4
    far = RoutingInstance("far", [(0, 0), (9, 0), (1, 0)], [0, 1, 1], 9)
    assert far.bound == 18
    assert far.scale == (9 + 1 + 8) / 3
    assert copy.deepcopy(SQUARE) is SQUARE
    with pytest.raises(ValueError, match="read-only"):
        SQUARE.distances[0, 0] = 1


def test_the_bound_is_below_the_shortest_routes() -> None:
    for seed in range(6):
        instance = drawn("random(5, capacity=11)", seed)
        assert instance.bound <= shortest_routes(instance)


def test_the_bound_of_rounded_distances_is_below_the_shortest_routes() -> None:
    line = RoutingInstance("line", [(0, 0), (1, 1), (2, 2)], [0, 1, 1], 10, [[0, 1, 3], [1, 0, 1], [3, 1, 0]])
    assert line.bound == 4  # the second customer is at a distance of 2 by the first one; routes take 1 + 1 + 3
    generator = np.random.default_rng(0)
    n_shorter = 0
    for _ in range(60):
        coordinates = generator.integers(0, 6, (5, 2))
        distances = np.floor(np.sqrt(((coordinates[:, np.newaxis] - coordinates) ** 2).sum(-1)) + 0.5)
        instance = RoutingInstance("rounded", coordinates, [0, *generator.integers(1, 4, 4)], 12, distances)
        assert instance.bound <= shortest_routes(instance)
        n_shorter += instance.bound < 2 * distances[0].max()
    assert n_shorter > 2


def test_customers_at_the_depot_have_no_scale() -> None:
    instance = RoutingInstance("point", [(1, 1), (1, 1)], [0, 1], 1)
    assert (instance.scale, instance.bound) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([(0, 0)], [0], 3), "there is no customer"),
        (([(0, 0), (1, 1)], [0], 3), "got coordinates of shape (2, 2) and demands of shape (1,)"),
        (([(0, 0), (1, 1)], [1, 1], 3), "the depot has a demand of 1"),
        (([(0, 0), (1, 1)], [0, 4], 3), "customer 1 has a demand of 4, but vehicles carry from 0 to 3"),
        (([(0, 0), (1, 1)], [0, 1], 0), "capacity=0 must be from 1"),
        (([(0, 0), (1, 1)], [0, 1], 2.5), "capacity=2.5 must be a whole number; multiply it and all demands"),
        (([(0, 0), (1, 1)], [0, 1], float("nan")), "capacity=nan must be from 1"),
        (([(0, 0), (1, 1)], [0, 0.5], 3), "demands must be whole numbers; multiply all of them"),
        (([(0, 0), (1, 1)], [0, float("nan")], 3), "demands must be whole numbers"),
        (([(0, 0), (1, 1)], [0, -1e30], 3), "demands must be numbers up to 1000000000; one is 1e+30"),
        (([(0, 0), (1, np.nan)], [0, 1], 3), "coordinates must be finite numbers"),
        (([(0, 0), (1, 1)], [0, 1], 3, [[0, 1]]), "distances have shape (1, 2); expected (2, 2)"),
        (([(0, 0), (1, 1)], [0, 1], 3, [[0, 1], [2, 0]]), "distances must be symmetric"),
        (([(0, 0), (1, 1)], [0, 1], 3, [[0, -1], [-1, 0]]), "distances must be numbers from 0"),
    ],
)
def test_an_impossible_instance_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RoutingInstance("bad", *arguments)


def test_stacked_instances_are_padded_and_come_back() -> None:
    arrays = InstanceArrays.empty(3, 6)
    arrays.put(np.array([2, 0]), InstanceArrays.of([SQUARE, drawn("random(3, capacity=9)", 0)], 5))
    again = arrays.instance(2, "again")
    assert again.demands.tolist() == SQUARE.demands.tolist()
    assert (again.distances == SQUARE.distances).all()
    assert (arrays.scale[2], arrays.bound[2], arrays.n_customers.tolist()) == (SQUARE.scale, SQUARE.bound, [3, 0, 4])
    arrays.put(np.array([2]), InstanceArrays.of([drawn("random(2, capacity=9)", 1)], 2))
    assert not arrays.demands[2, 3:].any()
    assert not arrays.distances[2, 3:].any()


def test_random_instances_depend_on_the_seed_alone_and_keep_their_ranges() -> None:
    sizes = set()
    for seed in range(30):
        instance = drawn("random(3-6, capacity=15, demands=2-7)", seed)
        same = drawn("random(3-6, capacity=15, demands=2-7)", seed)
        assert (instance.coordinates == same.coordinates).all()
        sizes.add(instance.n_customers)
        assert 2 <= instance.demands[1:].min() <= instance.demands[1:].max() <= 7
        assert 0 <= instance.coordinates.min() <= instance.coordinates.max() <= 1
        assert instance.distances[0, 1] == pytest.approx(straight(instance, 0, 1))
    assert sizes == {3, 4, 5, 6}


def test_capacities_are_those_of_the_literature() -> None:
    capacities = {n: drawn(f"random({n})", 0).capacity for n in (10, 20, 50, 100)}
    assert capacities == {10: 20, 20: 30, 50: 40, 100: 50}


def test_places_and_demands_are_uniform() -> None:
    instance = drawn("random(2000, capacity=50)", 0)
    assert abs(instance.coordinates.mean() - 0.5) < 0.02
    assert np.bincount(instance.demands[1:], minlength=10)[1:].min() > 160


def test_a_whole_capacity_may_have_any_type_and_fractions_are_refused() -> None:
    for capacity in (3.0, np.float64(3), np.int64(3)):
        instance = RoutingInstance("whole", [(0, 0), (1, 1)], [0, 1], capacity)
        assert (instance.capacity, type(instance.capacity)) == (3, int)
    with pytest.raises(ValueError, match=r"capacity=9\.5 of random instances must be a whole number"):
        RandomInstances((10, 10), 9.5)  # type: ignore[arg-type]


def test_instances_with_the_same_routes_have_the_same_content() -> None:
    places = [(0, 0), (3, 4), (0, 4)]
    first = RoutingInstance("first", places, [0, 2, 1], 3)
    assert first.content == RoutingInstance("second", places, [0, 2, 1], 3, best_known=12.0).content
    others = [
        RoutingInstance("demands", places, [0, 1, 2], 3),
        RoutingInstance("capacity", places, [0, 2, 1], 4),
        RoutingInstance("places", [(0, 0), (3, 4), (0, 5)], [0, 2, 1], 3),
        RoutingInstance("distances", places, [0, 2, 1], 3, [[0, 5, 4], [5, 0, 2], [4, 2, 0]]),
    ]
    assert len({instance.content for instance in others} - {first.content}) == 4


@pytest.mark.parametrize(
    "text",
    [
        "random()",
        "random(x)",
        "random(0)",
        "random(60)",
        "random(20-50)",
        "random(6-5, capacity=9)",
        "random(20, speed=3)",
        "random(20, capacity=8)",
        "random(20, capacity=9-12)",
        "random(20, demands=0-3)",
        "random(20, demands=9-3)",
        "random(20, demands=1.5)",
        "random(20",
        "random (20)",
    ],
)
def test_wrong_descriptions_of_random_instances_get_one_message(text: str) -> None:
    with pytest.raises(ValueError, match="random"):
        instance_sources([text])


def test_sources_are_named_in_several_ways() -> None:
    path = Path(__file__).parent / "A-n32-k5.vrp"
    sources = instance_sources(["random(20)", str(path), SQUARE, FixedInstance(SQUARE)])
    assert [source.max_customers for source in sources] == [20, 31, 4, 4]
    assert isinstance(sources[0], RandomInstances)
    assert sources[3].draw(np.random.default_rng(0)) is SQUARE


def test_files_may_be_paths_and_have_names_that_begin_with_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parent / "A-n32-k5.vrp").read_text()
    monkeypatch.chdir(tmp_path)
    for name in ("random20.vrp", "random(10)"):
        Path(name).write_text(text)
    sources = instance_sources(["random20.vrp", "random(10)", Path("random20.vrp"), Path("random(10)")])
    assert [source.max_customers for source in sources] == [31, 10, 31, 31]
    with pytest.raises(ValueError, match=r"'random30\.vrp' is not a description of random instances"):
        instance_sources(["random30.vrp"])
    with pytest.raises(ValueError, match="is not a readable text file"):
        instance_sources([Path("missing.vrp")])


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([], "there are no instances"),
        ("random(20)", "write a list, [random(20)]"),
        (["A-n32-k5"], "'A-n32-k5' is neither a file nor random(CUSTOMERS)"),
    ],
)
def test_unknown_instances_get_one_message(instances: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        instance_sources(instances)
