"""PyVRP, and the routes that it returns."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from maze_pl.envs.vehicle_routing import read_instance, solve_with_pyvrp
from maze_pl.envs.vehicle_routing.pyvrp_policy import PyVrpPolicy
from tests.envs.vehicle_routing.reference import FACTORIES, FOLDER, SQUARE, drawn, length_of, play, shortest_routes

needs_pyvrp = pytest.mark.skipif(importlib.util.find_spec("pyvrp") is None, reason="PyVRP is not installed")


@needs_pyvrp
def test_solutions_of_small_instances_are_optimal() -> None:
    for seed in range(3):
        instance = drawn("random(6, capacity=14)", seed)
        solution = solve_with_pyvrp(instance, time_limit=0.3)
        assert solution.distance == pytest.approx(shortest_routes(instance), rel=1e-4)
        assert solution.distance == pytest.approx(length_of(instance, solution.routes))


@pytest.mark.slow
@needs_pyvrp
def test_whole_distances_are_minimised_exactly() -> None:
    assert solve_with_pyvrp(read_instance(FOLDER / "A-n32-k5.vrp"), time_limit=2.0).distance == 784


@needs_pyvrp
@pytest.mark.parametrize("form", list(FACTORIES))
def test_the_policy_reaches_the_distance_of_the_solution(form: str) -> None:
    instance = drawn("random(6, capacity=14)", 0)
    env: Any = FACTORIES[form]([instance])
    rewards = play(env, PyVrpPolicy(env.action_spaces_dict, time_limit=0.3))
    assert -sum(rewards) == pytest.approx(shortest_routes(instance), rel=1e-4)


@needs_pyvrp
def test_a_limit_that_is_not_positive_gets_one_message() -> None:
    with pytest.raises(ValueError, match=r"time_limit=0\.0 \(seconds\) must be above 0"):
        solve_with_pyvrp(SQUARE, time_limit=0.0)


def test_a_missing_solver_gets_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=re.escape("pip install 'maze-pl[problems]'")):
        solve_with_pyvrp(SQUARE)
