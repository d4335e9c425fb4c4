"""A gymnasium environment that shows the actions that it gets, and actions of which many are outside of its space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


class BoundedActions(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """The observation is the last action, the reward its sum; bounds on both sides, on one, and on none."""

    def __init__(self) -> None:
        low = np.array([-0.1, -1.0, -np.inf], np.float32)
        high = np.array([0.2, np.inf, np.inf], np.float32)
        self.action_space = gymnasium.spaces.Box(low, high)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        return action.copy(), float(action.sum()), False, False, {}


def drawn_actions(n: int) -> NDArray[np.float32]:
    """Actions [n, 3] of a normal distribution with the standard deviation 3."""
    return np.random.default_rng(0).normal(0.0, 3.0, (n, 3)).astype(np.float32)


def clipped(action: NDArray[np.float32]) -> list[float]:
    """The values of an action [3], each moved to the nearest one that is allowed."""
    low, high = np.float32(-0.1), np.float32(0.2)
    first = low if action[0] < low else high if action[0] > high else action[0]
    return [float(first), float(action[1]) if action[1] > -1 else -1.0, float(action[2])]
