from __future__ import annotations

import numpy as np
import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import LogStatsWrapper, RewardScalingWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


def test_rewards_are_multiplied_and_the_logged_ones_are_not() -> None:
    env = LogStatsWrapper.wrap(RewardScalingWrapper.wrap(GymMazeEnv(Scripted([1.0, -2.0, 4.0])), scale=0.5))
    env.reset(seed=0)
    assert [env.step(NOTHING)[1] for _ in range(3)] == [0.5, -1.0, 2.0]
    assert env.drain_episode_summaries()[0].reward == 3.0


def test_actor_rewards_are_multiplied_too() -> None:
    env = RewardScalingWrapper.wrap(make_heap_env(), scale=0.5)
    env.reset(seed=0)
    for amount in (2, 1, 2, 3):
        env.step({"amount": amount})
    np.testing.assert_array_equal(env.get_actor_rewards(), [0.0, -0.5, 0.0, -0.5])


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_factors_that_are_not_finite_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=f"scale={scale} must be a finite number"):
        RewardScalingWrapper(make_heap_env(), scale=scale)
