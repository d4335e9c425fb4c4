"""Events keep the values with which they were fired, although environments change them in place."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl import rollout
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.events import (
    EpisodeEventLog,
    KpiCalculator,
    RunningKpiCalculator,
    define_episode_stats,
    define_epoch_stats,
    define_step_stats,
)
from maze_pl.events.attribute_values import copied, detached, plain, widened
from maze_pl.events.episode_log import StepEventLog
from maze_pl.events.pubsub import EnvironmentContext, Pubsub

N_STEPS = 4


class TankEvents:
    @define_epoch_stats(np.mean, input_name="total", output_name="total")
    @define_epoch_stats(max, input_name="most", output_name="most")
    @define_episode_stats(sum, input_name="level", output_name="total")
    @define_episode_stats(max, input_name="level", output_name="most")
    @define_step_stats(sum, input_name="level", output_name="level")
    def filled(self, level: Any) -> None: ...

    @define_epoch_stats(np.mean)
    @define_episode_stats(np.mean)
    @define_step_stats(lambda values: len(values[0]) + 10 * len(values[1]), input_name="names")
    def visited(self, names: Any) -> None: ...

    def moved(self, type: Any, locals: Any = None, *, map: Any = ()) -> None: ...


class TankKpis(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        return {
            "total": sum(float(one.attributes["level"]) for one in episode_event_log.query_events(TankEvents.filled))
        }


class RunningTankKpis(RunningKpiCalculator):
    def new_totals(self) -> dict[str, Any]:
        return {"total": 0.0}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        for record in step.query_events(TankEvents.filled):
            totals["total"] += float(record.attributes["level"])

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        return totals


class Tank(CoreEnv):
    """Fires its level before and after it fills up by 1, and the names so far, all of which it changes in place."""

    def __init__(self, empty: Callable[[], Any], calculator: KpiCalculator) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(TankEvents)
        self.empty, self.calculator = empty, calculator

    def seed(self, seed: int) -> None: ...

    def reset(self) -> int:
        self.level, self.names = self.empty(), list[str]()
        return 0

    def step(self, maze_action: Any) -> Any:
        self.events.filled(self.level)
        self.events.visited(names=self.names)
        self.level += 1
        self.names.append("a")
        self.events.filled(level=self.level)
        self.events.visited(self.names)
        return 0, 0.0, self.context.env_time == N_STEPS - 1, False, {}

    def get_maze_state(self) -> int:
        return 0

    def get_kpi_calculator(self) -> KpiCalculator:
        return self.calculator

    def close(self) -> None: ...


class Nothing(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"nothing": spaces.Box(0, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> Any:
        return {"nothing": np.zeros(1, np.float32)}


class Wait(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"wait": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return action["wait"]

    def maze_to_space(self, action: Any) -> Any:
        return {"wait": action}


EMPTY = [
    lambda: 0,
    lambda: np.zeros(()),
    lambda: np.zeros((), np.int8),
    lambda: torch.zeros(()),
    lambda: torch.zeros((), dtype=torch.int64),
    lambda: torch.zeros((), dtype=torch.bfloat16),
]


@pytest.mark.parametrize("calculator", [TankKpis(), RunningTankKpis()])
@pytest.mark.parametrize("empty", EMPTY)
def test_statistics_kpis_and_records_hold_values_as_they_were_fired(empty: Any, calculator: KpiCalculator) -> None:
    def make_env() -> MazeEnv:
        return MazeEnv(Tank(empty, calculator), {0: Wait()}, {0: Nothing()})

    fired = [level for step in range(N_STEPS) for level in (step, step + 1)]
    by_step = [step + step + 1 for step in range(N_STEPS)]
    lengths = [step + 10 * (step + 1) for step in range(N_STEPS)]
    (episode,) = rollout(make_env, "random", episodes=1, record=["states"])
    statistics = {key[2] or key[1]: value for key, value in episode.summary.statistics.items()}
    assert episode.summary.kpis == {"total": sum(fired)}
    assert (statistics["total"], statistics["most"]) == (sum(fired), max(by_step))
    assert statistics["visited"] == np.mean(lengths)
    assert episode.states is not None
    events = episode.states.event_log().query_events(TankEvents.filled)
    assert [float(record.attributes["level"]) for record in events] == fired


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Lorry:
    cargo: list[int]


def test_containers_are_copied_at_all_depths_and_other_objects_stay_the_same() -> None:
    pubsub = Pubsub(EnvironmentContext())
    events = pubsub.create_event_topic(TankEvents)
    array, tensor, names, lorry = np.zeros(2), torch.zeros(2), ["a"], Lorry([1])
    found = {"x": {1, 2}, "y": [array, lorry]}
    counts = collections.Counter("aab")
    events.moved(found, (1, tensor), map=Point(names, 2))
    events.moved(type=lorry, locals=counts, map=(1, "b", (2.0, None)))
    array += 1
    tensor += 1
    names.append("b")
    found["x"].add(3)
    found["z"] = 1
    counts["b"] += 1
    lorry.cargo.append(2)
    first, second = [record.attributes for record in pubsub.get_step_events()]
    assert list(first) == ["type", "locals", "map"]
    assert first["type"].keys() == {"x", "y"}
    assert first["type"]["x"] == {1, 2}
    assert first["type"]["y"][0].tolist() == [0, 0]
    assert first["type"]["y"][1] is lorry
    assert first["locals"][1].tolist() == [0, 0]
    assert first["map"] == Point(["a"], 2)
    assert type(first["map"]) is Point
    assert second["type"] is lorry
    assert second["locals"] == collections.Counter("aab")
    assert type(second["locals"]) is collections.Counter


@pytest.mark.parametrize(
    "value", [1, 0.5, True, None, "a", b"a", np.float32(1), (1, 2), (1, ("a", None)), Point(1, 2), Lorry, Lorry([1])]
)
def test_values_that_need_no_copy_are_not_copied(value: Any) -> None:
    assert copied(value) is value
    pubsub = Pubsub(EnvironmentContext())
    pubsub.create_event_topic(TankEvents).filled(value)
    assert pubsub.get_step_events()[0].attributes["level"] is value


def test_numbers_of_arrays_and_tensors_become_those_of_python() -> None:
    for value in (np.int8(3), np.array(3), torch.tensor(3), torch.tensor(3, dtype=torch.uint8)):
        assert (plain(value), type(plain(value))) == (3, int)
    for value in (np.float32(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.bfloat16)):
        assert (plain(value), type(plain(value))) == (0.5, float)
    assert type(plain(torch.tensor(True))) is bool
    halves = plain(torch.tensor([0.5, 2.0], dtype=torch.bfloat16, requires_grad=True))
    assert (halves.tolist(), type(halves)) == ([0.5, 2.0], np.ndarray)
    tensor = torch.zeros(2)
    array = detached(tensor)
    tensor += 1
    assert array.tolist() == [0, 0]


def test_only_narrow_numbers_are_widened() -> None:
    for dtype, wide in [
        (np.int8, np.int64),
        (np.uint32, np.int64),
        (np.float16, np.float64),
        (np.float32, np.float64),
        (np.float64, np.float64),
        (np.uint64, np.uint64),
        (np.bool_, np.bool_),
        (np.object_, np.object_),
    ]:
        array = np.array([1, 0], dtype)
        assert widened(array).dtype == wide
        assert widened([3, array])[1].dtype == wide
        assert widened(array).tolist() == array.tolist()
    numbers = [1, 0.5, "a"]
    assert widened(numbers) is numbers
