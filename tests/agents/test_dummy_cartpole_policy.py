from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from maze_pl.agents import DummyCartPolePolicy
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.runs.rollout import rollout


def episode_length(policy: Policy, seed: int) -> int:
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    length, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        batch = PolicyBatch(0, {"observation": observation[None]}, np.zeros(1, np.int64))
        observation, _, terminated, truncated, _ = env.step(int(policy.act(batch).action["action"][0]))
        length += 1
    env.close()
    return length


def test_pushes_to_where_the_pole_falls():
    observation = np.array([[0.0, 0.0, 0.1, 0.0], [0.0, 0.0, -0.1, 0.0], [0.0, 0.0, 0.1, -0.5]], np.float32)
    step = DummyCartPolePolicy().act(PolicyBatch(0, {"observation": observation}, np.zeros(3, np.int64)))
    assert step.action["action"].tolist() == [1, 0, 0]
    assert step.action["action"].dtype == np.int64


def test_balances_much_longer_than_chance():
    assert min(episode_length(DummyCartPolePolicy(), seed) for seed in range(3)) > 100


def test_an_observation_of_another_shape_or_name_is_refused():
    for observation, shapes in (
        ({"observation": np.zeros((2, 3, 4), np.float32)}, "{'observation': [3, 4]}"),
        ({"observation": np.zeros((2, 12), np.float32)}, "{'observation': [12]}"),
        ({"cart": np.zeros((2, 4), np.float32)}, "{'cart': [4]}"),
    ):
        expected = (
            "DummyCartPolePolicy reads 4 numbers from the observation 'observation', but the observations have the"
            f" shapes {shapes}; leave out wrappers that rename, stack or reshape it"
        )
        with pytest.raises(ValueError, match=re.escape(expected)):
            DummyCartPolePolicy().act(PolicyBatch(0, observation, np.zeros(2, np.int64)))


class Mirrored(ObservationWrapper):
    """Shows the poles from the other side."""

    def observation(self, observation: Observation) -> Observation:
        return {name: -array for name, array in observation.items()}


@pytest.mark.parametrize("make", [partial(GymMazeEnv, "CartPole-v1"), CartPoleArrayEnv, CartPoleTensorEnv])
def test_wrappers_of_observations_do_not_matter(make: Any) -> None:
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "max_steps": 60, "record": ()}
    for wrappers in ((), (Mirrored,)):
        played = rollout(make, "heuristic", wrappers=wrappers, **options)
        assert [one.summary.env_steps for one in played] == [60, 60]
