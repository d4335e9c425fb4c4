from __future__ import annotations

import os
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.vector.sequential_vector_env import SequentialVectorEnv
from maze_pl.envs.wrappers import (
    NoDictActionWrapper,
    NoDictObservationWrapper,
    NoDictSpacesWrapper,
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    TimeLimitWrapper,
    obtain_normalization_statistics,
)
from tests.envs.structured_example import make_heap_env


def test_gymnasiums_checker_finds_nothing_to_complain_about() -> None:
    env: Any = RandomResetWrapper.wrap(GymMazeEnv("CartPole-v1"), min_skip_steps=0, max_skip_steps=3)
    env = TimeLimitWrapper.wrap(env, max_episode_steps=50)
    env = ObservationNormalizationWrapper.wrap(env, default_strategy_config={"clip_range": [-5, 5], "axis": 0})
    obtain_normalization_statistics(env, n_samples=200)
    with mock.patch.dict(os.environ, SDL_VIDEODRIVER="dummy"):
        check_env(NoDictSpacesWrapper.wrap(env))  # warnings are errors in these tests


def test_the_wrapper_is_both_a_no_dict_observation_and_a_no_dict_action_wrapper() -> None:
    env = NoDictSpacesWrapper.wrap(GymMazeEnv("Pendulum-v1"))
    assert isinstance(env, NoDictObservationWrapper) and isinstance(env, NoDictActionWrapper)
    assert isinstance(env.observation_space, spaces.Box) and isinstance(env.action_space, spaces.Box)
    bare = GymMazeEnv("Pendulum-v1").core_env.env
    np.testing.assert_array_equal(env.reset(seed=3)[0], bare.reset(seed=3)[0])
    action = np.float32([0.5])
    np.testing.assert_equal(env.step(action)[:4], bare.step(action)[:4])
    assert env.unwrapped is env


def test_structured_environments_are_refused_with_the_reason() -> None:
    message = r"requires a flat environment.*HeapCoreEnv has agents .*\{'plan': 1, 'work': 3\}.*with maze_pl"
    with pytest.raises(ValueError, match=message):
        NoDictSpacesWrapper.wrap(make_heap_env())


def test_vector_environments_and_other_wrappers_refuse_it_by_name() -> None:
    env = NoDictSpacesWrapper.wrap(GymMazeEnv("CartPole-v1"))
    message = "of NoDictSpacesWrapper, which {} is to wrap, must be a Dict space, not Box; .*DictObservationWrapper"
    with pytest.raises(TypeError, match=message.format("TimeLimitWrapper")):
        TimeLimitWrapper.wrap(env, max_episode_steps=3)
    with pytest.raises(TypeError, match=message.format("LogStatsWrapper")):
        SequentialVectorEnv([lambda: env])


def test_a_second_wrapper_of_its_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="NoDictObservationWrapper is to take apart must be a Dict space, not Box"):
        NoDictSpacesWrapper.wrap(NoDictSpacesWrapper.wrap(GymMazeEnv("CartPole-v1")))
