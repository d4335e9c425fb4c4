"""Factories of environments that are made once more to return pictures."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

from maze_pl.config.factories import Factory
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.viewer.frames import drawing_without_display, with_frames

pytest.importorskip("pygame", reason="pygame is not installed, which draws CartPole")


def picture_of(make_env: Any) -> np.ndarray:
    with drawing_without_display():
        env = make_wrapped(make_env)
        env.reset(seed=0)
        picture: np.ndarray = env.render()
        env.close()
    return picture


@pytest.mark.parametrize(
    "factory",
    [
        Factory("maze_pl.envs.GymMazeEnv", {"env": "CartPole-v1"}),
        Factory("examples.catch.catch_env.CatchEnv", {"size": 84}),
    ],
)
def test_environments_that_take_a_render_mode_return_pictures(factory: Factory) -> None:
    drawing = with_frames(factory)
    assert drawing is not None
    picture = picture_of(drawing)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3


def test_agents_of_pettingzoo_are_drawn() -> None:
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed")
    drawing = with_frames(Factory("maze_pl.envs.make_pettingzoo_env", {"name": "classic/tictactoe-v3"}))
    assert drawing is not None
    assert picture_of(drawing).shape[2] == 3


class Plain(gymnasium.Env[Any, Any]):
    """An environment without a render mode."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    "factory",
    [
        lambda: GymMazeEnv("CartPole-v1"),
        Factory(f"{__name__}.Plain"),
        Factory("maze_pl.envs.GymMazeEnv", {"env": "CartPole-v1"}, {"render_mode": "human"}),
        Factory("maze_pl.envs.GymMazeEnv", {"env": "CartPole-v1"}, {"no_such_argument": 1}),
    ],
)
def test_others_are_left_as_they_are(factory: Any) -> None:
    assert with_frames(factory) is None


class Described(gymnasium.Env[Any, Any]):
    """An environment that describes itself where it should draw."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {}

    def render(self) -> Any:
        return "hello"


def test_an_environment_that_returns_no_picture_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_frames(Factory(f"{__name__}.Described")) is None
    came = "render of Described returned 'hello' of type str"
    expected = f"maze-pl: there are no pictures: {came}; expected an array [height, width, 3] of bytes\n"
    assert capsys.readouterr().err == expected


class FatalError(Exception):
    """An error that derives from no other class, as that of MuJoCo without OpenGL."""


class WithoutGraphics(Described):
    """An environment whose renderer fails, and then cannot be closed."""

    n_closed = 0

    def render(self) -> Any:
        warnings.warn("there is no display", UserWarning, stacklevel=2)
        raise FatalError("an OpenGL library is missing\ndetails follow")

    def close(self) -> None:
        WithoutGraphics.n_closed += 1
        raise AttributeError("the renderer does not exist")


def test_an_environment_that_cannot_draw_here_is_closed_and_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_frames(Factory(f"{__name__}.WithoutGraphics")) is None
    assert WithoutGraphics.n_closed == 1
    reason = "FatalError: an OpenGL library is missing"
    assert capsys.readouterr().err == f"maze-pl: there are no pictures: {reason}\n"
