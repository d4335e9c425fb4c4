from __future__ import annotations

import numpy as np
import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import LogStatsWrapper, RewardClippingWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import HeapCoreEnv, make_heap_env


def test_rewards_are_clipped_and_the_logged_ones_are_not() -> None:
    env = GymMazeEnv(Scripted([3.0, -7.0, 0.5]))
    env = LogStatsWrapper.wrap(RewardClippingWrapper.wrap(env, min_val=-1.0, max_val=2.0))
    env.reset(seed=0)
    assert [env.step(NOTHING)[1] for _ in range(3)] == [2.0, -1.0, 0.5]
    assert env.drain_episode_summaries()[0].reward == -3.5


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be above"):
        RewardClippingWrapper.wrap(GymMazeEnv("CartPole-v1"), min_val=1.0, max_val=0.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_rewards_of_single_actors_that_are_not_finite_are_refused_before_they_are_clipped(value: float) -> None:
    class Infinite(HeapCoreEnv):
        def get_actor_rewards(self) -> np.ndarray:
            return np.array([0.0, value, 0.0, 0.0])

    env = RewardClippingWrapper.wrap(make_heap_env(core_env=Infinite()), min_val=-1.0, max_val=1.0)
    env.reset(seed=0)
    for amount in (2, 1, 2, 3):
        env.step({"amount": amount})
    message = rf"get_actor_rewards\(\) of Infinite returned the reward {value}, which is not finite"
    with pytest.raises(EnvContractError, match=message):
        env.get_actor_rewards()
