"""A corridor with a door at its end: one step costs one, and who goes right all the time is out first."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Layout:
    """What a corridor looks like.

    Args:
        length: Steps from its beginning to the door.
        file: A drawing of it, which nobody but this project can read.
    """

    def __init__(self, length: int, file: str | None = None) -> None:
        self.length, self.file = length, file


class CorridorEnv(gymnasium.Env[np.ndarray, int]):
    def __init__(self, layout: Layout, max_steps: int) -> None:
        self.layout, self.max_steps = layout, max_steps
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.position, self.n_steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.n_steps = 0, 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position = max(self.position + (1 if action == 1 else -1), 0)
        self.n_steps += 1
        terminated = self.position == self.layout.length
        return self._observation(), -1.0, terminated, not terminated and self.n_steps == self.max_steps, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.position / self.layout.length], np.float32)
