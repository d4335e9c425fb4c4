"""The pilot of the lunar lander: what it does, and how well it lands in both variants."""

from __future__ import annotations

import doctest
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.agents import LunarLanderHeuristicPolicy, lunar_lander_heuristic_policy
from maze_pl.core.policy import PolicyBatch
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers import DiscretizeActionsWrapper, ObservationStackWrapper, SplitActionsWrapper
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


class Halved(ObservationWrapper):
    """Shows half of each number."""

    def observation(self, observation: Observation) -> Observation:
        return {name: array * np.float32(0.5) for name, array in observation.items()}


STACK = partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 2}])


@pytest.mark.parametrize("wrapper", [Halved, STACK])
def test_wrappers_of_observations_do_not_matter(wrapper: Any) -> None:
    make = partial(GymMazeEnv, "LunarLander-v3")
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "max_steps": 80, "record": ()}
    plain, wrapped = (rollout(make, "heuristic", wrappers=wrappers, **options) for wrappers in ((), (wrapper,)))
    assert [one.summary.reward for one in wrapped] == [one.summary.reward for one in plain]


def test_states_of_another_kind_leave_the_observation() -> None:
    observation = np.array([situation for situation, _ in SITUATIONS], np.float32)
    expected = [engine for _, engine in SITUATIONS]
    n = len(observation)
    lists, named = observation.tolist(), [{"observation": row} for row in observation]
    for states in (lists, named, list(observation)):  # read instead of what is observed
        batch = PolicyBatch(0, {"observation": np.zeros((n, 8), np.float32)}, np.zeros(n), maze_state=states)
        assert LunarLanderHeuristicPolicy(DISCRETE).act(batch).action["action"].tolist() == expected
    for state in ({}, {"observation": 3}, None, "x", np.zeros((2, 8)), [[1], [2, 3]], (1.0, "a")):
        batch = PolicyBatch(0, {"observation": observation}, np.zeros(n), maze_state=[state] * n)
        assert LunarLanderHeuristicPolicy(DISCRETE).act(batch).action["action"].tolist() == expected


DISCRETIZED = partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 3}})
SPLIT = partial(SplitActionsWrapper, split_config={"action": {"main": {"indices": [0]}, "side": {"indices": [1]}}})


@pytest.mark.parametrize("wrappers", [[DISCRETIZED], [SPLIT], [DISCRETIZED, SPLIT]])
def test_it_plays_the_same_under_wrappers_that_replace_actions(wrappers: list[Any]) -> None:
    make = partial(GymMazeEnv, "LunarLanderContinuous-v3")
    options: dict[str, Any] = {"episodes": 2, "seed": 1, "max_steps": 80, "record": ()}
    plain, translated = (rollout(make, "heuristic", wrappers=stack, **options) for stack in ([], wrappers))
    assert [one.summary.reward for one in translated] == [one.summary.reward for one in plain]


@pytest.mark.parametrize("wrapper", [DISCRETIZED, SPLIT])
def test_other_actions_are_refused(wrapper: Any) -> None:
    make = partial(GymMazeEnv, "LunarLanderContinuous-v3")
    with pytest.raises(ValueError, match=r"LunarLanderHeuristicPolicy gives actions of .*; play it without"):
        rollout(make, LunarLanderHeuristicPolicy, wrappers=[wrapper], record=())
