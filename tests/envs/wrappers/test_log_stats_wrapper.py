from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs import GymMazeEnv, MazeEnv, ObservationWrapper, Wrapper
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import LogStatsWrapper, StepSkipWrapper, TimeLimitWrapper
from maze_pl.events import EpisodeEventLog, EpochStatistics, KpiCalculator, define_epoch_stats
from maze_pl.events.event_names import topic_name
from maze_pl.events.topics import ContinuousActionEvents, DiscreteActionEvents, StatisticsError
from tests.envs.relay import Amount, RelayCoreEnv, Turn
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


def finish(env: LogStatsWrapper, action: Any = NOTHING) -> EpisodeSummary:
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
    (summary,) = env.drain_episode_summaries()
    return summary


def action_values(summary: EpisodeSummary) -> dict[tuple[str, tuple[str, ...]], Any]:
    return {(key[0], key[3]): value for key, value in summary.statistics.items() if key[1] == "action"}


def test_each_episode_is_summed_up_once() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.5])), logging_prefix="main")
    for _ in range(3):
        env.reset(seed=0)
        summary = finish(env)
        assert (summary.reward, summary.env_steps, summary.kpis) == (6.5, 3, {})
        assert env.drain_episode_summaries() == []
    assert env.logging_prefix == "main"


def test_truncated_episodes_are_summed_up_too() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0] * 9, truncate_at=2)))
    env.reset(seed=0)
    assert finish(env).env_steps == 2


def test_summaries_wait_until_they_are_fetched() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0])))
    for _ in range(3):
        env.reset()
        env.step(NOTHING)
        env.step(NOTHING)
    assert [summary.reward for summary in env.drain_episode_summaries()] == [3.0] * 3


def test_an_episode_that_reset_cuts_off_is_dropped() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0])))
    env.reset(seed=0)
    env.step(NOTHING)
    env.reset(seed=0)
    assert finish(env).reward == 6.0


def test_an_episode_that_reset_cuts_off_is_counted_as_left_out() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0])))
    for _ in range(3):
        env.reset(seed=0)
        env.step(NOTHING)
    env.reset(seed=0)
    env.reset(seed=0)  # which has not begun
    assert env.n_unfinished == 3
    env.estimate(3, seed=0)
    assert env.n_unfinished == 3
    assert finish(env).reward == 6.0
    assert env.n_unfinished == 0


def test_an_episode_that_reset_cuts_off_is_summed_up_when_asked() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0])), count_unfinished=True)
    env.reset(seed=0)
    env.step(NOTHING)
    env.reset(seed=0)
    env.reset(seed=0)
    for _ in range(2):
        env.step(NOTHING)
    env.reset(seed=0)
    assert [(one.reward, one.env_steps) for one in env.drain_episode_summaries()] == [(1.0, 1), (3.0, 2)]
    assert env.n_unfinished == 0


def test_an_unfinished_episode_can_be_closed_once() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0])))
    env.close_episode()
    env.reset(seed=0)
    env.close_episode()
    assert env.drain_episode_summaries() == []
    env.step(NOTHING)
    env.close_episode()
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    assert (summary.reward, summary.env_steps) == (1.0, 1)


class Everything(Scripted):
    def __init__(self) -> None:
        super().__init__([0.0, 0.0])
        self.action_space = spaces.Dict(
            {
                "a": spaces.Discrete(3),
                "b": spaces.MultiDiscrete([2, 5]),
                "c": spaces.MultiBinary(3),
                "d": spaces.Box(-1, 1, (2,), np.float32),
            }
        )


def test_actions_are_logged_by_the_kind_of_their_space() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv(Everything()))
    env.reset(seed=0)
    binary = np.array([0, 1, 1], np.int8)
    summary = finish(env, {"a": 2, "b": np.array([1, 4]), "c": binary, "d": np.array([0.25, -0.5], np.float32)})
    values = {key: np.asarray(value).tolist() for key, value in action_values(summary).items()}
    assert values == {
        ("DiscreteActionEvents", ("substep_0", "a")): [2, 2],
        ("DiscreteActionEvents", ("substep_0", "b")): [[1, 4], [1, 4]],
        ("DiscreteActionEvents", ("substep_0", "c")): [[0, 1, 1], [0, 1, 1]],
        ("ContinuousActionEvents", ("substep_0", "d")): [[0.25, -0.5], [0.25, -0.5]],
    }


def test_the_action_that_counts_is_the_one_given_from_outside() -> None:
    class AlwaysOne(Wrapper):
        def step(self, action: Any) -> Any:
            return self.env.step({"action": 1})

    env = LogStatsWrapper.wrap(AlwaysOne.wrap(GymMazeEnv("CartPole-v1", max_episode_steps=3)))
    env.reset(seed=0)
    values = action_values(finish(env, {"action": 0}))
    assert np.asarray(*values.values()).tolist() == [0, 0, 0]


def test_steps_that_a_wrapper_makes_by_itself_are_counted() -> None:
    class Twice(Wrapper):
        def step(self, action: Any) -> Any:
            _, first, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                return _, first, terminated, truncated, info
            observation, second, *rest = self.env.step(action)
            return (observation, first + second, *rest)

    env = LogStatsWrapper.wrap(Twice.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0, 4.0, 5.0]))))
    env.reset(seed=0)
    summary = finish(env)
    assert (summary.reward, summary.env_steps) == (15.0, 5)


def test_kpis_are_those_of_the_whole_episode_including_its_reset() -> None:
    env = LogStatsWrapper.wrap(TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=2))
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        heap = float(observation["heap"][0])
        summary = finish(env, {"amount": 1})
        assert summary.kpis == {"acts_per_step": 3.0, "heap": heap + 6}
        assert [value for key, value in summary.statistics.items() if key[1] == "cleared"] == [1.0]


class KeepsTheLog(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        actions = episode_event_log.query_events([DiscreteActionEvents.action, ContinuousActionEvents.action])
        self.seen = [
            (one.attributes["name"], one.attributes.get("num_actions"), np.asarray(one.attributes["value"]).tolist())
            for one in actions
        ]
        self.times = [(one.env_time, one.attributes["step_key"]) for one in actions]
        return {}


def stepped_with_a_calculator(actions: Any) -> KeepsTheLog:
    gym_env, calculator = GymMazeEnv(Everything()), KeepsTheLog()
    gym_env.core_env.get_kpi_calculator = lambda: calculator  # type: ignore[method-assign]
    env = LogStatsWrapper.wrap(gym_env)
    for _ in range(2):  # the first episode is none of the second one's
        env.reset(seed=0)
        for action in actions():
            env.step(action)
    return calculator


def test_kpis_may_be_computed_from_the_actions() -> None:
    def action(a: int) -> dict[str, Any]:
        box = np.array([0.25 * a, -0.5], np.float32)
        return {"a": a, "b": np.array([1, a]), "c": np.array([0, 1, 1], np.int8), "d": box}

    calculator = stepped_with_a_calculator(lambda: [action(2), action(0)])
    assert calculator.seen == [
        *[("a", 3, 2), ("b", 5, [1, 2]), ("c", 2, [0, 1, 1]), ("d", None, [0.5, -0.5])],
        *[("a", 3, 0), ("b", 5, [1, 0]), ("c", 2, [0, 1, 1]), ("d", None, [0.0, -0.5])],
    ]
    assert calculator.times == [(0, 0)] * 4 + [(1, 0)] * 4


def test_the_actions_of_kpis_are_those_of_their_time_even_if_an_array_is_used_again() -> None:
    box = np.zeros(2, np.float32)

    def actions() -> Any:
        for value in (0.25, 0.5):
            box[:] = value
            yield {"a": 0, "b": np.array([0, 0]), "c": np.zeros(3, np.int8), "d": box}

    seen = stepped_with_a_calculator(actions).seen
    assert [value for name, _, value in seen if name == "d"] == [[0.25, 0.25], [0.5, 0.5]]


def test_actions_in_lists_and_tensors_that_are_used_again_are_those_of_their_time() -> None:
    chosen, box = [0, 0], torch.zeros(2)
    env = LogStatsWrapper.wrap(GymMazeEnv(Everything()))
    env.reset(seed=0)
    for step in range(2):
        chosen[1] = step + 1
        box[:] = 0.25 * step
        env.step({"a": torch.tensor(step), "b": chosen, "c": [0, 1, 1], "d": box})
    (summary,) = env.drain_episode_summaries()
    values = {labels[1]: np.asarray(value).tolist() for (_, labels), value in action_values(summary).items()}
    assert values == {"a": [0, 1], "b": [[0, 1], [0, 2]], "c": [[0, 1, 1]] * 2, "d": [[0, 0], [0.25, 0.25]]}


def test_events_that_never_happened_count_as_zero() -> None:
    env = LogStatsWrapper.wrap(make_heap_env())
    env.reset(seed=0)
    env.step({"amount": 0})
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    assert [value for key, value in summary.statistics.items() if key[1] == "added"] == [0.0]


def test_estimation_by_wrappers_inside_is_not_counted() -> None:
    class Estimating(ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return observation

        def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
            env.reset(seed=seed)
            for _ in range(n_samples):
                env.step(NOTHING)

    env = LogStatsWrapper.wrap(Estimating.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0]))))
    env.estimate(3, seed=0)
    assert env.drain_episode_summaries() == []


def test_summaries_become_the_documented_statistics() -> None:
    env = LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1", max_episode_steps=4))
    epoch = EpochStatistics()
    for seed in range(3):
        env.reset(seed=seed)
        epoch.add(finish(env, {"action": seed % 2}))
    values = epoch.compute()
    assert values["BaseEnvEvents/reward/mean"] == 4.0
    assert values["BaseEnvEvents/reward/total_step_count"] == 12
    assert values["BaseEnvEvents/reward/episode_count"] == 3
    histogram: Any = values["DiscreteActionEvents/action/substep_0/action"]
    assert (histogram.count, histogram.mean) == (12, 4 / 12)


def test_an_environment_that_is_logged_steps_as_without() -> None:
    bare, env = gymnasium.make("CartPole-v1"), LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1"))
    expected, _ = bare.reset(seed=2)
    observation, _ = env.reset(seed=2)
    for i in range(10):
        np.testing.assert_array_equal(observation["observation"], expected)
        expected, *_ = bare.step(i % 2)
        observation, *_ = env.step({"action": i % 2})


class Undeclared(KpiCalculator):
    kpi_names = ("height",)

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        return {"height": 1.0, "width": 2.0}


def test_a_kpi_that_its_calculator_does_not_declare_is_an_error() -> None:
    gym_env = GymMazeEnv("CartPole-v1")
    gym_env.core_env.get_kpi_calculator = Undeclared  # type: ignore[method-assign]
    env = LogStatsWrapper.wrap(gym_env)
    env.reset(seed=0)
    env.step({"action": 0})
    with pytest.raises(StatisticsError, match="Undeclared computes the KPI 'width': add it to kpi_names"):
        env.close_episode()


class Unordered(Undeclared):
    kpi_names = ("weight", "width", "height")


def test_kpis_have_the_order_in_which_they_are_declared() -> None:
    gym_env = GymMazeEnv("CartPole-v1")
    gym_env.core_env.get_kpi_calculator = Unordered  # type: ignore[method-assign]
    env = LogStatsWrapper.wrap(gym_env)
    env.reset(seed=0)
    env.step({"action": 0})
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    assert list(summary.kpis.items()) == [("width", 2.0), ("height", 1.0)]


@pytest.mark.parametrize("n_steps", [1, 2, 4])
def test_an_episode_that_ends_within_a_skipped_step_has_this_step_in_its_kpis_and_statistics(n_steps: int) -> None:
    class EndsInStep3(RelayCoreEnv):
        def step(self, maze_action: int) -> Any:
            state, reward, terminated, truncated, info = super().step(maze_action)
            return state, reward, terminated or (self.turn == 1 and self.context.env_time == 3), truncated, info

    conversions = {"pick": Amount(), "tool": Amount()}, {"pick": Turn(), "tool": Turn()}
    env = LogStatsWrapper.wrap(StepSkipWrapper(MazeEnv(EndsInStep3(), *conversions), n_steps))
    env.reset(seed=0)
    while not any(env.step({"amount": 1})[2:4]):
        continue
    (summary,) = env.drain_episode_summaries()
    assert summary.kpis == {"acts_per_step": 10 / 4, "turn": 1, "time": 3}
    assert summary.env_steps == 3
    rewards = {key[2]: value for key, value in summary.statistics.items() if key[1] == "acted"}
    assert rewards == {"n_steps": 4, "most": 3}


class DistanceEvents:
    @define_epoch_stats(np.mean, output_name="mean")
    def covered(self, distance: float) -> None:
        """A distance was covered."""


class Further(Wrapper):
    """Adds statistics.

    Args:
        env: The environment.
        further: The statistics.
    """

    def __init__(self, env: Any, further: Any) -> None:
        super().__init__(env)
        self.further = further

    def end_episode(self) -> Any:
        return self.further


COVERED = (topic_name(DistanceEvents), "covered", None, ())


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array([1.0, 3.0])])
def test_statistics_of_wrappers_are_summed_up(value: Any) -> None:
    env = LogStatsWrapper.wrap(Further(GymMazeEnv(Scripted([1.0, 2.0])), {COVERED: value}))
    env.reset()
    statistics = EpochStatistics()
    statistics.add(finish(env))
    assert statistics.compute()["DistanceEvents/covered/mean"] == 2.0


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (3.0, r"'3\.0' of type float; expected a dict whose keys are \(name of a topic, event, statistic or None"),
        (None, "None; expected a dict"),
        ({"my": 1.0}, "a statistic named 'my'; expected a dict whose keys"),
        ({COVERED[:3]: 1.0}, "a statistic named .*; expected a dict whose keys"),
        ({(*COVERED[:3], None): 1.0}, "a statistic named .*; expected a dict whose keys"),
        ({(*COVERED[:3], (0,)): 1.0}, "a statistic named .*; expected a dict whose keys"),
        ({("Mine", *COVERED[1:]): 1.0}, "a statistic of an unknown topic: event topic 'Mine' cannot be imported"),
        ({(COVERED[0], "lost", None, ()): 1.0}, "a statistic of .*:DistanceEvents, which declares no event 'lost'"),
        ({COVERED: "far"}, "'far' of type str for .*; expected a number or an array"),
    ],
)
def test_malformed_statistics_of_wrappers_are_refused(further: Any, message: str) -> None:
    env = LogStatsWrapper.wrap(TimeLimitWrapper(Further(GymMazeEnv(Scripted([1.0, 2.0])), further), 5))
    env.reset()
    with pytest.raises(EnvContractError, match=f"^end_episode of Further returned {message}"):
        finish(env)
