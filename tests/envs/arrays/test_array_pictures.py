"""Pictures of single episodes of array environments."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from maze_pl import rollout
from maze_pl.envs import CartPoleArrayEnv
from maze_pl.envs.arrays import ArrayMazeEnv
from maze_pl.envs.cutting_2d import Cutting2DArrayEnvironment, Cutting2DRenderer
from maze_pl.envs.rendering import figure_to_array

CUTTING = partial(Cutting2DArrayEnvironment, 10, (10, 10), [(3, 3), (2, 5)])


def test_the_state_of_an_episode_is_drawn_by_the_renderer_of_the_array_environment() -> None:
    env = ArrayMazeEnv(CUTTING())
    env.reset(seed=1)
    before = env.render()
    env.step({"piece_idx": 0, "cut_rotation": 0, "cut_order": 0})
    picture = env.render()
    expected = Cutting2DRenderer().render(env.array_env.maze_state(0))
    np.testing.assert_array_equal(picture, figure_to_array(expected))
    assert (picture != before).any()


def test_an_environment_without_a_renderer_says_so() -> None:
    env = ArrayMazeEnv(CartPoleArrayEnv())
    env.reset(seed=1)
    assert env.get_renderer() is None
    assert type(env.get_maze_state()) is dict
    with pytest.raises(NotImplementedError, match="has no renderer"):
        env.render()


def test_episodes_of_a_rollout_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (played,) = rollout(CUTTING, "random", max_steps=3, seed=0, record=("states", "frames", "gifs"))
    assert played.states is not None
    assert len(played.states.frames) == 4
    assert len(set(played.states.frames)) > 1
    assert len(list(Path("renderings").glob("*.gif"))) == 1
    stocks = [step.maze_state.state.inventory for step in played.states.steps]
    assert stocks[0] == [(10, 10)]  # copied before it changed
