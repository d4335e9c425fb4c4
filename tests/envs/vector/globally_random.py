"""A flat environment that draws from the global generators, which its seed does not reach."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv


class GloballyRandom(gymnasium.Env[Any, Any]):
    """Observes one number of Python's generator and one of NumPy's; never ends."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.array([random.random(), np.random.rand()]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([random.random(), np.random.rand()]), 0.0, False, False, {}


def make_globally_random() -> GymMazeEnv:
    """One such environment, adapted."""
    return GymMazeEnv(GloballyRandom())
