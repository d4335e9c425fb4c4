"""Episodes of array environments, played one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayVectorEnv, CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.job_shop import JobShopArrayEnvironment, job_shop_factory
from maze_pl.envs.multi_echelon_stock import StockArrayEnvironment, StockChain, stock_factory, structured_stock_factory
from maze_pl.envs.ride_hailing import RideHailingArrayEnvironment
from maze_pl.envs.vehicle_routing import VehicleRoutingArrayEnvironment, vehicle_routing_factory
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.events.topics import StatisticsError
from maze_pl.runs.rollout import rollout
from tests.envs.multi_echelon_stock.chains import DRIFTING
from tests.envs.ride_hailing.small import FORMS, SHORT

PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "stock": (
        lambda: StockArrayEnvironment(StockChain(**DRIFTING)),
        lambda: stock_factory(StockChain(**DRIFTING)),
        {},
    ),
    "structured stock": (
        lambda: StockArrayEnvironment(StockChain(**DRIFTING), structured=True),
        lambda: structured_stock_factory(StockChain(**DRIFTING)),
        {},
    ),
    "job shop": (
        partial(JobShopArrayEnvironment, ["random(5x4)"]),
        partial(job_shop_factory, ["random(5x4)"]),
        {},
    ),
    "vehicle routing": (
        partial(VehicleRoutingArrayEnvironment, ["random(8, capacity=20)"]),
        partial(vehicle_routing_factory, ["random(8, capacity=20)"]),
        {},
    ),
    "ride hailing": (
        partial(RideHailingArrayEnvironment, **SHORT),
        partial(FORMS["vehicles"], **SHORT),
        {"max_agents": {"vehicle": 4}},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_rules_that_use_the_state_of_the_simulation_play_as_in_single_episodes(name: str) -> None:
    arrays, single, options = PAIRS[name]
    options = {"episodes": 3, "seed": 4, "max_steps": 100, **options}
    played = [[one.summary for one in rollout(make, "heuristic", **options)] for make in (arrays, single)]
    assert [one.reward for one in played[0]] == [one.reward for one in played[1]]
    assert [one.env_steps for one in played[0]] == [one.env_steps for one in played[1]]
    assert len({one.reward for one in played[0]}) > 1


class Tabulated(CartPoleArrayEnv):
    """Has options in arrays, one of which cannot be written."""

    def __init__(self) -> None:
        super().__init__()
        self.table = np.arange(4.0)
        self.table.setflags(write=False)
        self.bias = np.ones(1)  # as long as the arrays of one environment


def test_options_in_arrays_are_not_state_in_either_form() -> None:
    vector = ArrayVectorEnv(Tabulated, 1)
    vector.reset()
    env, copy = ArrayMazeEnv(Tabulated()), ArrayMazeEnv(Tabulated())
    env.reset(seed=0)
    copy.reset(seed=1)
    assert env.core_env.env.maze_state(0).keys() == vector.env.maze_state(0).keys()
    copy.clone_from(env)
    action = {"action": 1}
    assert np.array_equal(env.step(action)[0]["observation"], copy.step(action)[0]["observation"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((1, 1)), r"KPI 'level' of Measured is an array of shape \(1, 1\).* for 1 episodes; return one number"),
        (np.array(["high"]), "KPI 'level' of Measured is an array of shape .* for 1 episodes; return one number"),
        (np.array([np.inf]), "KPI 'level' of environment 0 is infinite"),
    ],
)
def test_malformed_kpis_are_named_as_in_arrays(values: np.ndarray, message: str) -> None:
    class Measured(CartPoleArrayEnv):
        kpi_names = ("level",)

        def kpis(self, which: Any) -> dict[str, np.ndarray]:
            return {"level": values}

    env = LogStatsWrapper.wrap(ArrayMazeEnv(Measured()))
    env.reset(seed=1)
    with pytest.raises(StatisticsError, match=message):
        for _ in range(20):
            env.step({"action": 1})
