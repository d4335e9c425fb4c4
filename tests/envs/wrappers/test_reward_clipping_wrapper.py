from __future__ import annotations

import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import LogStatsWrapper, RewardClippingWrapper
from tests.envs.scripted import NOTHING, Scripted


def test_rewards_are_clipped_and_the_logged_ones_are_not() -> None:
    env = GymMazeEnv(Scripted([3.0, -7.0, 0.5]))
    env = LogStatsWrapper.wrap(RewardClippingWrapper.wrap(env, min_val=-1.0, max_val=2.0))
    env.reset(seed=0)
    assert [env.step(NOTHING)[1] for _ in range(3)] == [2.0, -1.0, 0.5]
    assert env.drain_episode_summaries()[0].reward == -3.5


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be above"):
        RewardClippingWrapper.wrap(GymMazeEnv("CartPole-v1"), min_val=1.0, max_val=0.0)
