"""Maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.rendering import figure_to_array
from maze_pl.envs.vehicle_routing import RoutingMazeAction, VehicleRoutingRenderer, vehicle_routing_factory
from tests.envs.vehicle_routing.reference import SQUARE

pytest.importorskip("matplotlib")


def drawn_map(actions: list[int], action: RoutingMazeAction | None = None) -> Any:
    env = vehicle_routing_factory([SQUARE], max_customers=5)
    env.reset(seed=0)
    for option in actions:
        env.step({"option": option})
    return VehicleRoutingRenderer().render(env.get_maze_state(), action).axes


def lines(collection: Any) -> list[list[tuple[float, float]]]:
    return [[tuple(point) for point in segment.tolist()] for segment in collection.get_segments()]


def test_lines_are_the_routes() -> None:
    axes, loads = drawn_map([1, 2, 3])
    inner, outer, customers, depot = axes.collections
    assert lines(inner) == [[(4, 0), (4, 3)], [(0, 3)]]
    assert lines(outer) == [[(0, 0), (4, 0)], [(4, 3), (0, 0)], [(0, 0), (0, 3)], [(0, 3), (0, 0)]]
    assert len(customers.get_offsets()) == 4
    assert depot.get_offsets().tolist() == [[0, 0]]
    assert [bar.get_width() for bar in loads.patches] == [1, 1, 0.75, 0.5]
    assert "3 of 4 customers served   distance 18   best known 16" in axes.get_title(loc="left")


def test_customers_have_the_colour_of_their_route_and_the_area_of_their_demand() -> None:
    axes, _ = drawn_map([1, 2, 3])
    customers = axes.collections[2]
    colours = [tuple(colour) for colour in customers.get_facecolors()]
    assert colours[0] == colours[1] != colours[2]
    assert len(set(colours)) == 3  # customer 4 waits
    areas = customers.get_sizes()
    assert areas[3] > areas[0] == areas[2] > areas[1]


def test_a_vehicle_under_way_has_a_ring_and_the_chosen_drive_an_arrow() -> None:
    axes, _ = drawn_map([1], RoutingMazeAction(0, 2))
    ring = axes.collections[-1]
    assert ring.get_offsets().tolist() == [[4, 0]]
    (arrow,) = axes.patches
    assert arrow._posA_posB == [(4, 0), (4, 3)]
    assert "next: from customer 1 to customer 2" in axes.get_title(loc="left")


def test_an_empty_map_and_a_forbidden_choice_are_drawn() -> None:
    axes, loads = drawn_map([])
    assert len(axes.collections) == 2
    assert len(loads.patches) == SQUARE.n_vehicles_bound
    axes, _ = drawn_map([], RoutingMazeAction(0, 5))
    assert "node 5 chosen, which is not allowed" in axes.get_title(loc="left")


def test_a_step_is_rendered_by_the_environment() -> None:
    env = vehicle_routing_factory([SQUARE])
    env.reset(seed=0)
    env.step({"option": 1})
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    expected = vehicle_routing_factory([SQUARE])
    expected.reset(seed=0)
    drawn = figure_to_array(VehicleRoutingRenderer().render(expected.get_maze_state(), RoutingMazeAction(0, 1)))
    env.reset(seed=0)
    env.step({"option": 1})
    assert (env.render() == drawn).all()
