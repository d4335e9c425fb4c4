"""An environment that says which actions are allowed, without declaring it as a mask, and refuses all others."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

N_OPTIONS = 5


class ForbiddenAction(Exception):
    """Raised by a forbidden action, which must never occur in training."""


class Strict(gymnasium.Env[Any, Any]):
    """Allows two other options after each step.

    Args:
        shape: Shape of what says so: (5,), or (5, 1) where a wrapper has to flatten it.
    """

    action_space = spaces.Discrete(N_OPTIONS)

    def __init__(self, shape: tuple[int, ...] = (N_OPTIONS,)) -> None:
        allowed = spaces.Box(0, 1, shape, np.float32)
        self.observation_space = spaces.Dict({"allowed": allowed, "place": spaces.Box(-9, 9, (2,), np.float32)})
        self.shape, self.n_steps = shape, 0
        self.allowed = np.zeros(N_OPTIONS, np.float32)

    def observe(self) -> dict[str, Any]:
        self.allowed = np.zeros(N_OPTIONS, np.float32)
        self.allowed[self.np_random.permutation(N_OPTIONS)[:2]] = 1
        place = self.np_random.uniform(-9, 9, 2).astype(np.float32)
        return {"allowed": self.allowed.reshape(self.shape), "place": place}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        if not self.allowed[action]:
            raise ForbiddenAction(f"{action} is not among {np.flatnonzero(self.allowed)}")
        self.n_steps += 1
        return self.observe(), 1.0, self.n_steps == 12, False, {}
