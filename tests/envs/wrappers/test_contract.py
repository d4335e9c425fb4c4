"""What every wrapper must do, whatever it changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv, StructuredEnv, Wrapper
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from tests.envs.structured_example import HeapCoreEnv, make_heap_env

WRAPPERS: dict[type[Wrapper], dict[str, Any]] = {
    LogStatsWrapper: {},
    ObservationNormalizationWrapper: {"default_strategy_config": {"clip_range": [-3, 3], "axis": 0}},
    ReturnNormalizationRewardWrapper: {"gamma": 0.9},
    RewardClippingWrapper: {"min_val": -0.5, "max_val": 0.5},
    RewardScalingWrapper: {"scale": 0.1},
    TimeLimitWrapper: {"max_episode_steps": 3},
}
ENVIRONMENTS: dict[str, Callable[[], MazeEnv]] = {
    "flat": lambda: GymMazeEnv("CartPole-v1"),
    "continuous": lambda: GymMazeEnv("Pendulum-v1"),
    "structured": make_heap_env,
}


@pytest.fixture(params=list(WRAPPERS), ids=lambda wrapper: wrapper.__name__)
def wrapper(request: pytest.FixtureRequest) -> type[Wrapper]:
    return request.param


@pytest.fixture(params=list(ENVIRONMENTS))
def make(request: pytest.FixtureRequest, wrapper: type[Wrapper]) -> Callable[[], Wrapper]:
    def make() -> Wrapper:
        env = wrapper.wrap(ENVIRONMENTS[request.param](), **WRAPPERS[wrapper])
        env.estimate(50, seed=1)
        return env

    return make


def play(env: StructuredEnv, n_acts: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Acts at random, with checks of what comes out on the way; a list of all that happened."""
    observation, _ = env.reset(seed=seed)
    log: list[tuple[Any, ...]] = []
    for _ in range(n_acts):
        key = env.actor_id().step_key
        assert env.observation_space is env.observation_spaces_dict[key]
        assert env.action_space is env.action_spaces_dict[key]
        assert env.observation_space.contains(observation), observation
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        assert isinstance(reward, float)
        assert isinstance(info, dict)
        values = {name: value.tolist() for name, value in observation.items()}
        log.append((key, values, reward, terminated, truncated, env.get_env_time(), env.is_actor_done()))
        if terminated or truncated:
            seed += 1
            observation, _ = env.reset(seed=seed)
    return log


def test_what_comes_out_is_in_the_spaces(make: Callable[[], Wrapper]) -> None:
    assert len(play(make(), 40)) == 40


def test_the_same_seed_gives_the_same_thousand_acts(make: Callable[[], Wrapper]) -> None:
    assert play(make(), 1000) == play(make(), 1000)


def test_spec_is_the_same_for_each_copy_and_survives_being_written(make: Callable[[], Wrapper]) -> None:
    spec = Spec.of(make())
    assert Spec.from_dict(spec.to_dict()) == spec == Spec.of(make())


def test_the_rest_of_the_interface_is_passed_on(make: Callable[[], Wrapper]) -> None:
    env, inner = make(), make().unwrapped
    env.reset(seed=3)
    inner.reset(seed=3)
    action = env.action_space.sample()
    env.step(action)
    inner.step(action)
    assert env.actor_id() == inner.actor_id()
    assert env.agent_counts_dict == inner.agent_counts_dict
    assert env.action_masks_dict == inner.action_masks_dict
    assert env.action_spaces_dict == inner.action_spaces_dict
    assert env.get_env_time() == inner.get_env_time()
    assert env.get_episode_id() == inner.get_episode_id()
    assert env.get_serializable_components() == inner.get_serializable_components()
    assert env.get_renderer() is inner.get_renderer()
    assert type(env.get_kpi_calculator()) is type(inner.get_kpi_calculator())
    assert len(env.get_step_events()) == len(inner.get_step_events()) > 0
    assert env.pubsub is env.core_env.pubsub
    assert env.context is env.core_env.context
    np.testing.assert_equal(env.get_maze_state(), inner.get_maze_state())
    np.testing.assert_equal(env.get_maze_action(), inner.get_maze_action())


def test_options_of_reset_reach_the_environment(wrapper: type[Wrapper]) -> None:
    env = wrapper.wrap(make_heap_env(), **WRAPPERS[wrapper])
    with pytest.raises(ValueError, match="takes no options"):
        env.reset(options={"level": 2})


def test_isinstance_sees_the_wrapper_and_what_it_wraps(make: Callable[[], Wrapper], wrapper: type[Wrapper]) -> None:
    env = TimeLimitWrapper.wrap(RewardScalingWrapper.wrap(make(), scale=1.0), max_episode_steps=10)
    assert isinstance(env, wrapper)
    assert isinstance(env, MazeEnv)


def test_a_copy_goes_on_where_a_pickle_was_made(make: Callable[[], Wrapper]) -> None:
    env = make()
    play(env, 5)
    copy = pickle.loads(pickle.dumps(env))
    assert play(copy, 30, seed=9) == play(env, 30, seed=9)


def test_a_copy_that_gets_the_state_goes_on_like_the_original(make: Callable[[], Wrapper]) -> None:
    env, other = make(), make()
    play(env, 33)
    other.load_state_dict(env.state_dict())
    assert play(other, 30, seed=9) == play(env, 30, seed=9)


def test_merged_states_make_copies_equal(make: Callable[[], Wrapper]) -> None:
    envs = [make() for _ in range(3)]
    for i, env in enumerate(envs):
        play(env, 20 + i, seed=i)
    states = [env.shared_state() for env in envs]
    before = pickle.dumps(states)
    merged = type(envs[0]).merge_shared_states(states)
    assert pickle.dumps(states) == before
    for env in envs:
        env.load_shared_state(merged)
    np.testing.assert_equal([env.shared_state() for env in envs], [merged] * 3)
    logs = [play(env, 10, seed=5) for env in envs]
    assert logs[0] == logs[1] == logs[2]


def test_a_frozen_copy_learns_nothing_more(make: Callable[[], Wrapper]) -> None:
    env = make()
    play(env, 20)
    env.freeze()
    before = env.shared_state()
    play(env, 20, seed=4)
    np.testing.assert_equal(env.shared_state(), before)


def test_close_reaches_the_simulation(wrapper: type[Wrapper]) -> None:
    env = wrapper.wrap(make_heap_env(), **WRAPPERS[wrapper])
    env.close()
    assert isinstance(env.core_env, HeapCoreEnv)
    assert env.core_env.closed
