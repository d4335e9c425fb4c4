"""Of a long episode a checkpoint holds the state of the environment, and not all actions, where that is possible."""

from __future__ import annotations

import io
import math
import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.core import histogram
from maze_pl.core.batches import Rollout
from maze_pl.core.histogram import Histogram
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.vector import (
    SequentialVectorEnv,
    SubprocVectorEnv,
    VectorEnv,
    episode_state,
    long_episodes,
    plain_gym_envs,
)
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ObservationNormalizationWrapper,
    ObservationStackWrapper,
    ObservationVisualizationWrapper,
    ReturnNormalizationRewardWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
)
from maze_pl.events import (
    DiscreteActionEvents,
    KpiCalculator,
    RunningKpiCalculator,
    StepEventLog,
    episode_statistics,
    folding,
)
from tests.datamodules.drift import Endless, Iterating
from tests.envs import structured_example
from tests.envs.structured_example import (
    HeapCoreEnv,
    HeapEvents,
    NamedAction,
    PlanObservation,
    WorkObservation,
    make_heap_env,
)
from tests.equality import assert_equal


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have episodes be long from 50 acts on, and those of heaps not end by themselves."""
    monkeypatch.setattr(long_episodes, "MOST_REPLAYED_ACTS", 50)
    monkeypatch.setattr(structured_example, "N_STEPS", 10**9)


def plain(n_steps: int = 150) -> Any:
    return GymMazeEnv("Pendulum-v1", max_episode_steps=n_steps)


def wrapped(n_steps: int = 150) -> Any:
    env = TimeLimitWrapper.wrap(StepSkipWrapper.wrap(plain(10**6), n_steps=2), max_episode_steps=2 * n_steps)
    return ReturnNormalizationRewardWrapper.wrap(env)


class HeapWithoutKpis(HeapCoreEnv):
    """KPIs need all events of an episode."""

    def get_kpi_calculator(self) -> None:
        return None


def structured(n_steps: int = 150) -> Any:
    actions = {"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")}
    env = MazeEnv(HeapWithoutKpis(), actions, {"plan": PlanObservation(), "work": WorkObservation()})
    return TimeLimitWrapper.wrap(env, max_episode_steps=n_steps)


class RunningHeapKpis(RunningKpiCalculator):
    """The KPIs of heaps, one step after the other."""

    def new_totals(self) -> dict[str, Any]:
        return {"acts": 0, "steps": 0}

    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        totals["acts"] += len(step.query_events([HeapEvents.added, DiscreteActionEvents.action]))
        totals["steps"] += 1
        assert step.env_time == totals["steps"] - 1

    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        return {"acts_per_step": totals["acts"] / totals["steps"], "heap": last_maze_state["heap"]}


class HeapWithRunningKpis(HeapCoreEnv):
    def get_kpi_calculator(self) -> KpiCalculator:
        return RunningHeapKpis()


def with_kpis(n_steps: int = 150) -> Any:
    actions = {"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")}
    env = MazeEnv(HeapWithRunningKpis(), actions, {"plan": PlanObservation(), "work": WorkObservation()})
    return TimeLimitWrapper.wrap(env, max_episode_steps=n_steps)


def draw(values: list[Any], groups: tuple[str, ...]) -> None:
    """A picture of observations that shows nothing."""


def monitored(n_steps: int = 150) -> Any:
    env = ObservationNormalizationWrapper.wrap(
        plain(n_steps),
        default_statistics={"mean": 0.1, "std": 2.0},
    )
    env = ObservationStackWrapper.wrap(env, stack_config=[{"observation": "observation", "stack_steps": 3}])
    env = MazeEnvMonitoringWrapper.wrap(env, observation_logging=True, action_logging=True, reward_logging=True)
    return ObservationVisualizationWrapper.wrap(env, plot_function=draw)


class Walk(gymnasium.Env[Any, Any]):
    """A walk on a circle, with discrete actions and few different rewards."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.angle = float(self.np_random.random())
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.angle += int(action) - 1
        return self._observe(), float(self.angle > 0), False, False, {}

    def _observe(self) -> Any:
        return np.array([math.cos(self.angle), math.sin(self.angle)], np.float32)


def discrete(n_steps: int = 150) -> Any:
    return GymMazeEnv(gymnasium.wrappers.TimeLimit(Walk(), n_steps))


def fold_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    """Fold statistics after every `n_steps` + 1 steps, histograms to 32 bins."""
    monkeypatch.setattr(histogram, "MOST_DISTINCT_VALUES", 64)
    monkeypatch.setattr(histogram, "_N_BINS", 32)
    for module in (folding, episode_statistics, plain_gym_envs):
        monkeypatch.setattr(module, "MOST_KEPT_STEPS", n_steps)


def collector_of(make_env: Any, kind: Any = SequentialVectorEnv, **options: Any) -> Collector:
    vector: VectorEnv = kind([make_env] * 2, seed=5, **options)
    return Collector(vector, 40, torch.Generator().manual_seed(3))


def collect(collector: Collector, n: int) -> list[Rollout]:
    steps = collector.vector.spec.steps.items()
    policy = RandomPolicy({key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps})
    return [collector.collect(policy).clone() for _ in range(n)]


def saved(collector: Collector) -> Any:
    """The state as a checkpoint holds it."""
    file = io.BytesIO()
    torch.save(collector.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("make_env", [plain, wrapped, structured])
def test_a_long_episode_goes_on_exactly_from_its_state(make_env: Any) -> None:
    whole = collector_of(make_env)
    collect(whole, 3)
    state = saved(whole)
    for history in state["histories"]:
        assert len(history["keys"]) == episode_state.ACTS_BEFORE_STATE and "why" not in history
    expected = collect(whole, 3)
    assert sum(len(rollout.summaries) for rollout in expected) > 0  # with the statistics of the whole episode
    resumed = collector_of(make_env)
    assert resumed.load_state_dict(state) == []
    assert_equal(collect(resumed, 3), expected)


@pytest.mark.slow
@pytest.mark.parametrize("make_env", [partial(plain, 1000), partial(structured, 1000)])
def test_a_resumed_episode_can_be_saved_and_resumed_again_whether_its_state_is_taken_again_or_not(
    make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = collector_of(make_env)
    collect(whole, 2)
    first = saved(whole)
    expected = collect(whole, 4)
    resumed = collector_of(make_env)
    resumed.load_state_dict(first)
    assert_equal(collect(resumed, 2), expected[:2])
    second = saved(resumed)
    monkeypatch.setattr(long_episodes.LongEpisodes, "_replace", lambda *_: None)  # as where it is not possible any more
    third = saved(whole)  # of which the acts since the last state are a part
    assert len(second["histories"][0]["keys"]) < 20 < len(third["histories"][0]["keys"])
    for state, since in ((second, expected[2:]), (third, collect(whole, 2))):
        again = collector_of(make_env)
        assert again.load_state_dict(state) == []
        assert_equal(collect(again, 2), since)


@pytest.mark.slow
def test_environments_in_processes_do_the_same() -> None:
    whole, there = collector_of(plain), collector_of(plain, SubprocVectorEnv, n_workers=1)
    collect(whole, 3)
    state = saved(whole)
    there.load_state_dict(state)
    assert_equal(collect(there, 2), collect(whole, 2))
    there.vector.close()


@pytest.mark.slow
def test_what_is_saved_of_an_endless_episode_stays_small() -> None:
    collector = collector_of(partial(structured, 10**6))
    sizes = []
    for _ in range(3):
        collect(collector, 10)
        file = io.BytesIO()
        torch.save(collector.state_dict()["histories"], file)
        sizes.append(file.tell())
    for history in collector.vector.histories():
        assert len(history["keys"]) == episode_state.ACTS_BEFORE_STATE
    n_acts = 2 * 10 * 40 * 3  # at least, in two environments
    assert max(sizes[1] - sizes[0], sizes[2] - sizes[1]) < 4 * n_acts  # all actions are more than 16 bytes for each


@pytest.mark.parametrize("is_folded_before", [False, True])
@pytest.mark.parametrize(
    ("make_env", "n_acts"),
    [
        (plain, 1),
        (with_kpis, 3),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in [(discrete, 1), (wrapped, 1), (structured, 3)]),
        pytest.param(monitored, 1, marks=pytest.mark.slow),
    ],
)
def test_statistics_of_a_resumed_episode_are_those_of_one_that_was_never_stopped(
    make_env: Any, n_acts: int, is_folded_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_after(monkeypatch, (35 if is_folded_before else 130) // n_acts)
    make_env = partial(make_env, 150 // n_acts)
    never_saved, whole = collector_of(make_env), collector_of(make_env)
    collect(never_saved, 3)
    collect(whole, 3)
    state = saved(whole)
    assert all("state" in history for history in state["histories"])
    expected = collect(never_saved, 3)
    summaries = [summary for rollout in expected for summary in rollout.summaries]
    assert any(isinstance(value, Histogram) for summary in summaries for value in summary.statistics.values())
    assert_equal(collect(whole, 3), expected)
    resumed = collector_of(make_env)
    assert resumed.load_state_dict(state) == []
    assert_equal(collect(resumed, 3), expected)


@pytest.mark.parametrize("make_env", [plain, discrete])
def test_stepping_gymnasium_environments_directly_gives_the_statistics_of_the_wrapper(
    make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_after(monkeypatch, 40)
    direct = collector_of(make_env)
    monkeypatch.setattr(plain_gym_envs.PlainGymEnvs, "are_plain", staticmethod(lambda envs: False))
    layered = collector_of(make_env)
    found, expected = ([rollout.summaries for rollout in collect(one, 10)] for one in (direct, layered))
    assert sum(map(len, expected)) > 0
    assert_equal(found, expected)


def n_bytes(collector: Collector) -> int:
    file = io.BytesIO()
    torch.save(collector.state_dict(), file)
    return file.tell()


@pytest.mark.parametrize(
    "make_env",
    [
        plain,
        with_kpis,
        *(pytest.param(make, marks=pytest.mark.slow) for make in (discrete, wrapped, structured, monitored)),
    ],
)
def test_a_checkpoint_stops_growing_in_an_episode_that_never_ends(
    make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_after(monkeypatch, 39)  # after 40 steps, the length of a rollout
    collector = collector_of(partial(make_env, 10**6))
    sizes = []
    for _ in range(3):
        collect(collector, 8)
        sizes.append(n_bytes(collector))
    assert max(sizes[1:]) <= sizes[0] + 1_000, sizes  # statistics of 640 acts more are at least 2,000 bytes


def test_a_resumed_plain_episode_can_be_saved_with_its_acts_since_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    make_env = partial(plain, 1000)
    fold_after(monkeypatch, 45)
    whole = collector_of(make_env)
    collect(whole, 2)
    resumed = collector_of(make_env)
    resumed.load_state_dict(saved(whole))
    collect(resumed, 2)
    expected = collect(whole, 2) and collect(whole, 22)
    monkeypatch.setattr(long_episodes.LongEpisodes, "_replace", lambda *_: None)
    again = collector_of(make_env)
    assert again.load_state_dict(saved(resumed)) == []
    assert_equal(collect(again, 22), expected)


class Hidden(Endless):
    """Has a state that is no attribute of it."""

    memory: dict[int, int] = {}  # noqa: RUF012, that is the mistake

    def step(self, action: Any) -> Any:
        self.memory[id(self)] = self.memory.get(id(self), 0) + 1
        self.start = float(self.memory[id(self)])
        return super().step(action)


class Saving(Iterating):
    """Says itself what its state is."""

    def episode_state(self) -> Any:
        after = next(self.numbers)
        self.numbers = iter(range(after, 10**9))
        return {"after": after, "start": self.start, "time": self.time}

    def load_episode_state(self, state: Any) -> None:
        self.numbers = iter(range(state["after"], 10**9))
        self.start, self.time = state["start"], state["time"]
        self.rewards = []


@pytest.mark.parametrize(
    ("make_env", "why"),
    [
        (Iterating, r"environment 0 .*\.numbers is a builtins:range_iterator, whose state is not visible from Python"),
        (make_heap_env, "environment 0 cannot be taken: its KPIs are computed from all events of the episode"),
        (Hidden, "environment 0 cannot be taken: two new environments with the same restored state behave differently"),
    ],
)
def test_an_episode_whose_state_cannot_be_taken_is_kept_as_a_whole_and_says_why(make_env: Any, why: str) -> None:
    collector = collector_of(make_env)
    collect(collector, 3)
    history, other = collector.vector.histories()
    assert "state" not in history and len(history["keys"]) >= 120
    assert re.search(why, history["why"])
    assert re.search(why, other["why"])


def test_an_environment_that_says_what_its_state_is_goes_on_from_that() -> None:
    whole = collector_of(Saving)
    collect(whole, 3)
    state = saved(whole)
    assert "state" in state["histories"][0]
    resumed = collector_of(Saving)
    resumed.load_state_dict(state)
    assert_equal(collect(resumed, 1), collect(whole, 1))


class Renamed(Endless):
    """What `Endless` is in the next version of the user's code."""


def test_a_state_of_another_class_is_refused() -> None:
    whole = collector_of(Endless)
    collect(whole, 3)
    state = saved(whole)
    refused = r"environment 0 cannot restore its saved state.*:Endless, and a new object .* --warm-start"
    with pytest.raises(ValueError, match=refused):
        collector_of(Renamed).load_state_dict(state)
