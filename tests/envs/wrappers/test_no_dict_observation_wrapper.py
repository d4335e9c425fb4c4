from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import ActionMasksWrapper, NoDictObservationWrapper, ObservationStackWrapper
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env


def test_observations_are_the_only_entry() -> None:
    env = NoDictObservationWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0])))
    assert isinstance(env.observation_space, spaces.Box) and env.observation_space.shape == (2,)
    assert isinstance(env.action_space, spaces.Dict)
    np.testing.assert_array_equal(env.reset(seed=0)[0], [0, 0])
    np.testing.assert_array_equal(env.step(NOTHING)[0], [1, 10])


def test_several_observations_are_refused_by_name() -> None:
    stack = {"observation": "observation", "stack_steps": 2, "keep_original": True, "tag": "old"}
    env: Any = ObservationStackWrapper.wrap(GymMazeEnv("CartPole-v1"), stack_config=[stack])
    with pytest.raises(ValueError, match=r"single entry, but there are \['observation', 'observation-old'\]"):
        NoDictObservationWrapper.wrap(env)


def test_action_masks_are_not_lost_silently() -> None:
    env: Any = ActionMasksWrapper.wrap(GymMazeEnv("CartPole-v1"), action_masks={"action": "observation"})
    with pytest.raises(ValueError, match=r"without action masks.*'action': 'observation'"):
        NoDictObservationWrapper.wrap(env)


def test_structured_environments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"NoDictObservationWrapper requires a flat environment"):
        NoDictObservationWrapper.wrap(make_heap_env())
