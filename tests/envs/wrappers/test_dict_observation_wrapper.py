from __future__ import annotations

import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.wrappers import DictActionWrapper, DictObservationWrapper
from tests.envs.structured_example import make_heap_env
from tests.envs.wrappers.environments import AnyAction, Bare, make_bare_env, make_bare_heap_env


def test_observations_get_a_name_in_each_sub_step() -> None:
    env = DictObservationWrapper.wrap(DictActionWrapper.wrap(make_bare_heap_env()))
    assert {key: list(space) for key, space in env.observation_spaces_dict.items()} == {
        "plan": ["observation"],
        "work": ["observation"],
    }
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert Spec.of(env).step_keys == ("plan", "work")


def test_integers_become_arrays() -> None:
    core_env = GymCoreEnv(AnyAction(spaces.Discrete(2)))
    env = MazeEnv(core_env, {0: Bare(spaces.Discrete(2))}, {0: Bare(spaces.Discrete(4))})
    wrapped = DictObservationWrapper.wrap(env)
    assert wrapped.observation(3)["observation"].shape == ()
    assert wrapped.observation_space.contains(wrapped.observation(3))


def test_observations_with_names_are_refused() -> None:
    for env in (GymMazeEnv("CartPole-v1"), make_heap_env()):
        with pytest.raises(TypeError, match=r"the result of DictObservationWrapper for sub-step .* type Dict"):
            DictObservationWrapper.wrap(env)


def test_training_without_the_wrapper_says_that_it_is_needed() -> None:
    with pytest.raises(TypeError, match=r"must be a Dict space, not Box; .*DictObservationWrapper"):
        Spec.of(make_bare_env())
