"""The pilot of the lunar lander: what it does, and how well it lands in both variants."""

from __future__ import annotations

import doctest
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.agents import LunarLanderHeuristicPolicy, lunar_lander_heuristic_policy
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import rollout

DISCRETE = {0: spaces.Dict(action=spaces.Discrete(4))}
CONTINUOUS = {0: spaces.Dict(action=spaces.Box(-1, 1, (2,)))}
# position, velocity, angle and its change, legs -> nothing, left, main or right engine
SITUATIONS = [
    ((0, 1, 0, 0, 0, 0, 0, 0), 0),
    ((0, 1, 0, -1, 0, 0, 0, 0), 2),
    ((0, 1, 0, 0, -0.5, 0, 0, 0), 1),
    ((0, 1, 0, 0, 0.5, 0, 0, 0), 3),
    ((0.3, 1, 0, 0, 0, 0, 0, 0), 1),
    ((0, 0, 0, -0.5, 0.5, 0, 1, 0), 2),
    ((0, 0, 0, 0, 0.5, 0, 0, 1), 0),
]


def test_the_example_in_the_docstring_works() -> None:
    assert doctest.testmod(lunar_lander_heuristic_policy).failed == 0


def test_it_brakes_and_turns_against_what_is_wrong() -> None:
    observation = np.array([situation for situation, _ in SITUATIONS], np.float32)
    batch = PolicyBatch(0, {"observation": observation}, np.zeros(len(observation)))
    engines = LunarLanderHeuristicPolicy(DISCRETE).act(batch).action["action"]
    assert engines.tolist() == [engine for _, engine in SITUATIONS]
    thrust = LunarLanderHeuristicPolicy(CONTINUOUS).act(batch).action["action"]
    assert thrust.dtype == np.float32
    assert thrust[:4].tolist() == [[0, 0], [1, 0], [0, -1], [0, 1]]


@pytest.mark.parametrize("name", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_it_lands(name: str) -> None:
    played = rollout(partial(GymMazeEnv, name), "heuristic", 8, 1, record=())
    assert sum(one.summary.reward for one in played) / 8 > 200


@pytest.mark.slow
def test_its_mean_return_over_100_episodes_is_above_200() -> None:
    returns = [
        one.summary.reward for one in rollout(partial(GymMazeEnv, "LunarLander-v3"), "heuristic", 100, record=())
    ]
    assert np.mean(returns) > 260


def test_stacked_observations_are_refused() -> None:
    stacked = {"observation": np.zeros((2, 3, 8), np.float32)}
    message = r"LunarLanderHeuristicPolicy reads 8 numbers from the observation 'observation', .*\[3, 8\].* stack"
    with pytest.raises(ValueError, match=message):
        LunarLanderHeuristicPolicy(DISCRETE).act(PolicyBatch(0, stacked, np.zeros(2, np.int64)))
