"""Every stack of wrappers that comes with maze_pl runs around the environment that it is meant for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.config.pieces import from_file
from maze_pl.config.search_path import read
from maze_pl.envs import GymMazeEnv, MazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.cutting_2d import maze_env_factory

FOLDER = search_path.shipped_folder() / "wrappers"


class Picture(gymnasium.Env[Any, Any]):
    """Shows a picture that is white on the left and black on the right."""

    observation_space = spaces.Box(0, 255, (120, 160, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        picture = np.zeros((120, 160, 3), np.uint8)
        picture[:, :80] = 255
        return picture, {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 0.0, False, False, {}


ENVIRONMENTS: dict[str, Callable[[], MazeEnv]] = {
    "no_wrappers": lambda: GymMazeEnv("CartPole-v1"),
    "vector_obs": lambda: GymMazeEnv("CartPole-v1"),
    "pixel_obs": lambda: GymMazeEnv(Picture()),
    "pixel_obs_rnn": lambda: GymMazeEnv(Picture()),
    "tutorial_cutting_2d": lambda: maze_env_factory(200, [100, 100], [30, 15]),
    "tutorial_cutting_2d_basic": lambda: maze_env_factory(200, [100, 100], [30, 15]),
    "tutorial_cutting_2d_events": lambda: maze_env_factory(200, [100, 100], [30, 15]),
}


def make(name: str) -> Any:
    path = FOLDER / f"{name}.yaml"
    nodes = from_file("", path, read(path)).content
    env = make_wrapped(
        ENVIRONMENTS.get(name, ENVIRONMENTS["no_wrappers"]),
        [Factory(node["class_path"], node["init_args"]) for node in nodes],
    )
    env.estimate(50, seed=0)
    return env


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_stacks_run(name: str) -> None:
    env = make(name)
    observation, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(200):
        assert env.observation_space.contains(observation)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()


def test_pictures_become_gray_small_and_stacked_and_stay_bytes() -> None:
    env = make("pixel_obs")
    observation, _ = env.reset(seed=0)
    (picture,) = observation.values()
    assert list(observation) == ["observation-rgb2gray-resize_img"]
    assert env.observation_space["observation-rgb2gray-resize_img"] == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert (picture.shape, picture.dtype) == ((4, 84, 84), np.uint8)
    np.testing.assert_array_equal(picture[:, :, [10, 40]], 255)
    np.testing.assert_array_equal(picture[:, :, [44, 83]], 0)


def test_stacks_for_recurrent_networks_have_one_entry_for_each_time() -> None:
    pictures = make("pixel_obs_rnn").observation_space["observation-rgb2gray-resize_img-unsqueeze"]
    assert pictures == spaces.Box(0, 255, (4, 1, 84, 84), np.uint8)
    assert make("vector_obs_rnn").observation_space["observation"].shape == (4, 4)


def test_the_cutting_problem_gets_a_flat_inventory_and_two_hundred_steps() -> None:
    env = make("tutorial_cutting_2d_basic")
    env.reset(seed=0)
    assert env.observation_space["inventory-flatten"].shape == (400,)
    assert "inventory" not in env.observation_space.spaces
    env.action_space.seed(0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(200)]
    assert ends == [False] * 199 + [True]
