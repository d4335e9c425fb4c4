"""KPIs and statistics of episodes are examined: those that depend on earlier episodes, and those that are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs import ArrayStep, CartPoleArrayEnv, check_env
from maze_pl.envs.checker import CheckReport
from maze_pl.events import EpisodeEventLog, KpiCalculator
from tests.envs.arrays.yard import YardArrayEnv, YardCoreEnv, YardEvents, make_yard

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing


class TotalKpis(YardArrayEnv):
    """Counts hauls over all episodes."""

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        n_hauls = self.n_hauls.copy()
        result = super().reset(which, seeds)
        self.n_hauls[:] = n_hauls
        return result


class MoreEvents(YardArrayEnv):
    """Fires more events from episode to episode."""

    n_episodes = 0

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.n_episodes += 1
        result = super().reset(which, seeds)
        for _ in range(self.n_episodes):
            self.topic.planned(which)
        return result


class Remembering(KpiCalculator):
    """Adds up hauls of all episodes."""

    kpi_names = ("mean_haul", "never")
    total = 0

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        self.total += len(episode_event_log.query_events(YardEvents.hauled))
        return {"mean_haul": float(self.total)}


class Forgetful(Remembering):
    """Counts hauls of one episode."""

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        self.total = 0
        return super().calculate_kpis(episode_event_log, last_maze_state)


def _yard_with(calculator: type[KpiCalculator]) -> Any:
    """Return a function that makes single episodes with a calculator of KPIs."""

    def make() -> Any:
        env = make_yard()
        calculates = calculator()
        assert isinstance(env.core_env, YardCoreEnv)
        env.core_env.get_kpi_calculator = lambda: calculates  # type: ignore[method-assign, assignment, return-value]
        return env

    return make


def _lines(report: CheckReport, name: str) -> list[tuple[str, str]]:
    """Verdicts and explanations of a check."""
    return [(line.verdict, line.explanation) for line in report.lines if line.name == name]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (TotalKpis, "another KPI 'mean_haul' at environment step "),
        (MoreEvents, "YardEvents/planned' at environment step "),
        (_yard_with(Remembering), "another KPI 'mean_haul' at environment step "),
    ],
)
def test_statistics_that_depend_on_earlier_episodes_are_found(make: Any, what: str) -> None:
    ((verdict, explanation),) = _lines(check_env(make, n_steps=60), "determinism")
    assert verdict == "error"
    assert what in explanation


def test_sound_statistics_are_accepted_and_kpis_without_values_are_named() -> None:
    for make in (YardArrayEnv, make_yard):
        report = check_env(make, n_steps=60)
        assert report.ok
        assert _lines(report, "events") == [("ok", "all events that are declared were fired")]
    report = check_env(_yard_with(Forgetful), n_steps=60)
    assert report.ok
    assert _lines(report, "events") == [
        ("warning", "declared in kpi_names, but without a value in all episodes: never")
    ]


class OnlyPlans(YardArrayEnv):
    """Never asks the workers."""

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        self.turn[which] = 0
        self.time[which] += 1
        again = self._result()
        result.observation, result.next_key, result.next_agent = again.observation, again.next_key, again.next_agent
        result.actor_rewards = None
        return result


def test_a_sub_step_that_never_acts_is_named() -> None:
    expected = "sub-step 'work' never acted: check which actor acts next, or play more acts"
    assert ("warning", expected) in _lines(check_env(OnlyPlans, n_steps=30), "steps")
    assert _lines(check_env(YardArrayEnv, n_steps=30), "steps") == [("ok", "every observation lies in its space")]


class Outside(CartPoleArrayEnv):
    """Shows a number outside of its space, and has state in a number."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.n_acts = 0

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.n_acts = 0
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        self.n_acts += 1
        result = super().step(actions, which)
        assert isinstance(result.observation, dict)
        result.observation[0]["observation"] = np.full((self.n_envs, 4), 9.0, np.float32)
        result.reward = np.full(self.n_envs, float(self.n_acts))
        return result


def test_messages_about_arrays_name_the_class_and_where_state_is_saved() -> None:
    report = check_env(Outside, n_steps=40)
    ((verdict, explanation),) = _lines(report, "steps")
    assert verdict == "error"
    assert explanation.startswith("'observation' of sub-step 0 by Outside holds 9.0")
    ((verdict, explanation),) = _lines(report, "saving")
    assert verdict == "error"
    assert "keep the whole state in arrays, tensors, RandomStreams, or containers of numbers, made in" in explanation


def test_array_environments_are_compared_in_python_too() -> None:
    class OfFirst(YardArrayEnv):
        def step(self, actions: Any, which: Any) -> ArrayStep:
            result = super().step(actions, which)
            result.reward = np.full(self.n_envs, result.reward[0])
            return result

    ((verdict, explanation),) = _lines(check_env(OfFirst, n_steps=30), "arrays")
    assert verdict == "error"
    assert "4 environments in arrays and 4 single ones of the same seeds differ: environment 1" in explanation
    assert _lines(check_env(YardArrayEnv, n_steps=30), "arrays")[0][0] == "ok"
    ((verdict, explanation),) = _lines(check_env(YardArrayEnv(), n_steps=30), "arrays")
    assert verdict == "skipped"
    assert explanation.startswith("it needs a function that makes the array environment, or its class")
