"""A flat environment that does what it is told: its rewards and its end are given beforehand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Scripted(gymnasium.Env[Any, Any]):
    """Observations are (time, 10 * time); rewards are those of the list, after which the episode terminates."""

    def __init__(self, rewards: list[float], truncate_at: int | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.rewards, self.truncate_at, self.time = rewards, truncate_at, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self.rewards[self.time]
        self.time += 1
        return self._observe(), reward, self.time == len(self.rewards), self.time == self.truncate_at, {}

    def _observe(self) -> Any:
        return np.array([self.time, 10 * self.time], np.float32)


NOTHING = {"action": np.zeros(1, np.float32)}
