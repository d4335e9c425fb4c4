"""MuJoCo's environments by name: the numbers of gymnasium, and actions within their bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from maze_pl.envs import make_gym_maze_env

pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for MUJOCO_LOG.TXT."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["Hopper-v5", "HalfCheetah-v5"])
def test_numbers_are_those_of_gymnasium(name: str) -> None:
    env, plain = make_gym_maze_env(name), gymnasium.make(name)
    space: Any = plain.action_space
    space.seed(3)
    observation, _ = env.reset(seed=5)
    expected, _ = plain.reset(seed=5)
    ended = False
    for _ in range(60):
        assert np.array_equal(observation["observation"], expected)
        if ended:
            (observation, _), (expected, _) = env.reset(seed=6), plain.reset(seed=6)
        action = space.sample()
        observation, reward, terminated, truncated, _ = env.step({"action": action})
        expected, *of_plain, _ = plain.step(action)
        assert [reward, terminated, truncated] == of_plain
        ended = terminated or truncated
    env.close()
    plain.close()
