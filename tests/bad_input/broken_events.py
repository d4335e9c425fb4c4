"""Environments whose events, statistics, KPIs or rewards are wrong, each in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maze_pl.envs import MazeEnv
from maze_pl.events import KpiCalculator, define_episode_stats, define_epoch_stats, define_step_stats
from tests.events.depot import DepotCoreEnv, DepotKpis, Level, Order, SalesReward


class FireEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(len)
    def burnt(self, area: float) -> None: ...


class StepEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(lambda areas: areas[7])
    def burnt(self, area: float) -> None: ...


class TextEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(lambda values: "much")
    @define_step_stats(len)
    def burnt(self, area: float) -> None: ...


class EpochEvents:
    @define_epoch_stats(lambda values: None, output_name="total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def burnt(self, area: float) -> None: ...


class InputEvents:
    @define_epoch_stats(np.mean, input_name="totl")
    @define_episode_stats(sum, output_name="total")
    @define_step_stats(len)
    def burnt(self, area: float) -> None: ...


class AttributeEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="size")
    def burnt(self, area: float) -> None: ...


def same_name() -> type:
    class InventoryEvents:
        def burnt(self, area: float) -> None: ...

    return InventoryEvents


class Broken(DepotCoreEnv):
    def __init__(self, topic: type, fire: Callable[[Any], None]) -> None:
        super().__init__(SalesReward())
        self.fires: Any = self.pubsub.create_event_topic(topic)
        self.fire = fire

    def step(self, maze_action: float) -> Any:
        self.fire(self.fires)
        return super().step(maze_action)


class BadKpis(DepotKpis):
    def calculate_kpis(self, episode_event_log: Any, last_maze_state: Any) -> dict[str, float]:
        return {"usage": float("nan")}


class BadKpiEnv(DepotCoreEnv):
    def get_kpi_calculator(self) -> KpiCalculator:
        return BadKpis()


class BadRewardEnv(DepotCoreEnv):
    def step(self, maze_action: float) -> Any:
        state, _, *rest = super().step(maze_action)
        return (state, float("inf"), *rest)


def _env(core_env: DepotCoreEnv) -> MazeEnv:
    return MazeEnv(core_env, {0: Order()}, {0: Level()})


def wrong_argument() -> MazeEnv:
    return _env(Broken(FireEvents, lambda fires: fires.burnt(aera=1.0)))


def failing_step() -> MazeEnv:
    return _env(Broken(StepEvents, lambda fires: fires.burnt(1.0)))


def text() -> MazeEnv:
    return _env(Broken(TextEvents, lambda fires: fires.burnt(1.0)))


def nothing() -> MazeEnv:
    return _env(Broken(EpochEvents, lambda fires: fires.burnt(1.0)))


def unknown_input() -> MazeEnv:
    return _env(Broken(InputEvents, lambda fires: fires.burnt(1.0)))


def unknown_attribute() -> MazeEnv:
    return _env(Broken(AttributeEvents, lambda fires: fires.burnt(1.0)))


def two_topics() -> MazeEnv:
    return _env(Broken(same_name(), lambda fires: fires.burnt(1.0)))


def bad_kpi() -> MazeEnv:
    return _env(BadKpiEnv(SalesReward()))


def bad_reward() -> MazeEnv:
    return _env(BadRewardEnv(SalesReward()))
