from __future__ import annotations

import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import TwoHalvesWrapper, make_heap_env


def test_truncates_after_the_given_number_of_steps() -> None:
    env = TimeLimitWrapper.wrap(GymMazeEnv(Scripted([0.0] * 10)), max_episode_steps=3)
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(NOTHING)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_termination_in_the_last_step_is_no_truncation() -> None:
    env = TimeLimitWrapper.wrap(GymMazeEnv(Scripted([0.0] * 3)), max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(NOTHING)[2:4] for _ in range(3)][-1] == (True, False)


def test_truncation_further_in_is_kept() -> None:
    env = TimeLimitWrapper.wrap(GymMazeEnv(Scripted([0.0] * 9, truncate_at=2)), max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(NOTHING)[3] for _ in range(2)] == [False, True]


def test_sub_steps_do_not_count_and_truncation_waits_for_the_end_of_the_environment_step() -> None:
    env = TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=2)
    env.reset(seed=0)
    assert [env.step({"amount": 1})[3] for _ in range(8)] == [False] * 7 + [True]


def test_sub_steps_made_by_a_wrapper_do_not_count_either() -> None:
    env = TimeLimitWrapper.wrap(TwoHalvesWrapper.wrap(GymMazeEnv(Scripted([0.0] * 9))), max_episode_steps=2)
    env.reset(seed=0)
    actions = [{"act": 1}, NOTHING] * 2
    assert [env.step(action)[3] for action in actions] == [False, False, False, True]


def test_statistics_outside_see_the_truncated_episode() -> None:
    env = LogStatsWrapper.wrap(TimeLimitWrapper.wrap(GymMazeEnv(Scripted([1.0] * 9)), max_episode_steps=4))
    env.reset(seed=0)
    for _ in range(4):
        env.step(NOTHING)
    (summary,) = env.drain_episode_summaries()
    assert (summary.env_steps, summary.reward) == (4, 4.0)


def test_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="max_episode_steps=0"):
        TimeLimitWrapper.wrap(make_heap_env(), max_episode_steps=0)
