"""Flat environments in RLlib play the episodes that maze_pl plays."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper, TimeLimitWrapper
from maze_pl.rllib.flat_env import FlatEnv
from maze_pl.rllib.training_env import TrainingEnv, action_of
from tests.rllib.bounded_actions import BoundedActions, clipped, drawn_actions

SEED, ENV_INDEX = 5, 3


def factory_of(name: str) -> Any:
    limit = partial(TimeLimitWrapper, max_episode_steps=12)
    return partial(make_wrapped, partial(GymMazeEnv, name), [limit])


def flat_env(name: str) -> FlatEnv:
    make = factory_of(name)
    return FlatEnv(TrainingEnv(make, Spec.of(make()), SEED, ENV_INDEX))


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
def test_episodes_are_those_of_a_vector_environment_with_the_same_actions(name: str) -> None:
    vector = SequentialVectorEnv([factory_of(name)], seed=SEED, first_env_index=ENV_INDEX)
    env = flat_env(name)
    random = np.random.default_rng(0)
    vector.reset()
    observation, _ = env.reset()
    key = vector.spec.step_keys[0]
    ends = []
    for _ in range(40):
        staged = vector.staging.observation[key]["observation"][0]
        assert observation["observation"].tolist() == staged.tolist()
        assert env.observation_space.contains(observation)
        action = random.uniform(-2, 2, 1).astype(np.float32) if name == "Pendulum-v1" else int(random.integers(2))
        vector.staging.action[key]["action"][0] = action
        vector.step()
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, info) == (vector.staging.reward[0], {})
        assert (terminated, truncated) == (bool(vector.staging.terminated[0]), bool(vector.staging.truncated[0]))
        if terminated or truncated:
            ends.append((terminated, truncated))
            observation, _ = env.reset(seed=99)  # has no effect
    assert ends
    theirs = [(one.env_index, one.episode_index, one.reward, one.env_steps) for one in vector.drain_summaries()]
    report = env.training_env.report()
    ours = [(one.env_index, one.episode_index, one.reward, one.env_steps) for one in report.summaries]
    assert ours == theirs
    assert report.env_steps == 40
    assert env.training_env.report().env_steps == 0


def test_actions_outside_of_their_box_are_clipped_as_by_a_vector_environment() -> None:
    make = partial(make_wrapped, lambda: GymMazeEnv(BoundedActions()))
    vector = SequentialVectorEnv([make], seed=SEED)
    env = FlatEnv(TrainingEnv(make, Spec.of(make()), SEED))
    vector.reset()
    env.reset()
    key = vector.spec.step_keys[0]
    for action in drawn_actions(30):
        before = action.copy()
        vector.staging.action[key]["action"][0] = action
        vector.step()
        observation, reward, *_ = env.step(action)
        assert observation["observation"].tolist() == vector.staging.observation[key]["observation"][0].tolist()
        assert observation["observation"].tolist() == clipped(action)
        assert reward == vector.staging.reward[0]
        assert action.tolist() == before.tolist()  # from which RLlib learns


def test_an_observation_is_not_changed_by_later_steps() -> None:
    env = flat_env("CartPole-v1")
    first, _ = env.reset()
    before = first["observation"].copy()
    env.step(1)
    assert first["observation"].tolist() == before.tolist()


def test_actions_have_one_value_for_one_head_and_a_dict_for_several() -> None:
    heads = spaces.Dict({"turn": spaces.Discrete(3), "push": spaces.Box(-1.0, 1.0, (2,))})
    action = action_of({"turn": np.int64(2), "push": [0.5, -0.5]}, heads)
    assert (type(action["turn"]), action["turn"]) == (int, 2)
    assert action["push"].dtype == np.float32
    assert action_of(np.int64(1), spaces.Dict({"turn": spaces.Discrete(3)})) == {"turn": 1}


def test_statistics_of_wrappers_are_reported_and_replaced() -> None:
    make = partial(make_wrapped, partial(GymMazeEnv, "CartPole-v1"), [ReturnNormalizationRewardWrapper])
    first, second = (TrainingEnv(make, Spec.of(make()), SEED, index) for index in range(2))
    first.reset()
    for _ in range(5):
        first.step({"action": 1})
    (name, state), *_ = first.report().wrapper_statistics.items()
    assert state != second.report().wrapper_statistics[name]
    second.load_statistics({name: state})
    assert str(second.report().wrapper_statistics[name]) == str(state)
