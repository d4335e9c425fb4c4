from __future__ import annotations

import sys
from functools import partial
from typing import Any

import cloudpickle
import gymnasium
import pytest

from maze_pl.config.factories import Factory
from maze_pl.envs import GymMazeEnv, wrappers_of
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.vector.subproc_vector_env import SubprocVectorEnv
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    NoDictSpacesWrapper,
    RandomResetWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from tests.envs.structured_example import make_heap_env


def cartpole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def test_the_first_of_the_list_is_innermost() -> None:
    env = make_wrapped(
        cartpole, [partial(RewardScalingWrapper, scale=2.0), partial(TimeLimitWrapper, max_episode_steps=3)]
    )
    assert [type(wrapper) for wrapper in wrappers_of(env)] == [LogStatsWrapper, TimeLimitWrapper, RewardScalingWrapper]


def test_a_function_may_wrap_several_times_or_not_at_all() -> None:
    env = make_wrapped(cartpole, [lambda env: env, lambda env: TimeLimitWrapper(RewardScalingWrapper(env, 2.0), 3)])
    assert [type(wrapper) for wrapper in wrappers_of(env)] == [LogStatsWrapper, TimeLimitWrapper, RewardScalingWrapper]


@pytest.mark.parametrize(
    ("wrapper", "made"),
    [
        (partial(gymnasium.wrappers.TimeLimit, max_episode_steps=3), "type TimeLimit"),
        (GymMazeEnv, "type GymMazeEnv"),
        (lambda env: None, "None"),
        (lambda env: RewardScalingWrapper(cartpole(), 2.0), "type RewardScalingWrapper"),
        (Factory("maze_pl.envs.make_gym_maze_env", {"name": "CartPole-v1"}), "type GymMazeEnv"),
    ],
)
def test_what_is_no_wrapper_is_refused(wrapper: Any, made: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"list of wrappers made .*{made}.* not a Wrapper of maze_pl"):
        make_wrapped(make_heap_env, [wrapper])


def test_gymnasiums_wrappers_around_our_environments_are_refused() -> None:
    for make in (make_heap_env, cartpole):
        with pytest.raises(TypeError, match=r"gymnasium's TimeLimit around .* hides its sub-steps"):
            SequentialVectorEnv([lambda make=make: gymnasium.wrappers.TimeLimit(make(), 3)])
    inside = GymMazeEnv(gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 3))
    assert SequentialVectorEnv([lambda: inside]).n_envs == 1


def test_processes_that_fail_together_give_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    def make() -> Any:
        return RandomResetWrapper(TimeLimitWrapper(cartpole(), 3), min_skip_steps=3, max_skip_steps=3)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each process would import pytest
    vector = SubprocVectorEnv([make] * 3, n_workers=3)
    with pytest.raises(EnvContractError, match="RandomResetWrapper: the episode ended"):
        vector.reset()
    assert "Error" not in capfd.readouterr().err


def test_what_is_for_other_libraries_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="NoDictSpacesWrapper, which LogStatsWrapper is to wrap"):
        make_wrapped(cartpole, [NoDictSpacesWrapper])
