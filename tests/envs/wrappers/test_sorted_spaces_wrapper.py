from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs import ActionConversionInterface, MazeEnv, ObservationConversionInterface
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.wrappers import SortedSpacesWrapper
from tests.envs.wrappers.environments import AnyAction

NAMES = ["b", "a", "c"]


class Unsorted(ObservationConversionInterface, ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict(OrderedDict((name, spaces.Box(0, 1, (1,))) for name in NAMES))

    def maze_to_space(self, maze_state: Any) -> Any:
        return {name: np.zeros(1, np.float32) for name in NAMES}

    def space_to_maze(self, action: Any, maze_state: Any = None) -> Any:
        return action


def test_spaces_and_observations_are_sorted_by_name() -> None:
    bare = MazeEnv(GymCoreEnv(AnyAction(spaces.Discrete(2))), {0: Unsorted()}, {0: Unsorted()})
    assert list(bare.observation_space) == NAMES
    env = SortedSpacesWrapper.wrap(bare)
    observation, _ = env.reset(seed=0)
    action = env.action_space.sample()
    orders = [env.observation_space, observation, env.step(action)[0], env.action_space, action]
    assert [list(order) for order in orders] == [["a", "b", "c"]] * 5
    observations, _ = env.get_observation_and_action_dicts(np.zeros(1), None, True)
    assert observations is not None and list(observations[0]) == ["a", "b", "c"]
    assert list(bare.observation_space) == NAMES


def test_the_seed_of_reset_determines_what_the_space_samples() -> None:
    env = SortedSpacesWrapper.wrap(MazeEnv(GymCoreEnv(AnyAction(spaces.Discrete(2))), {0: Unsorted()}, {0: Unsorted()}))
    samples = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        samples.append(str(env.action_space.sample()))
    assert samples[0] == samples[1] != samples[2]
