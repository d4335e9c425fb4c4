"""Rewards of agents that cancel out, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs import Wrapper

PAID = np.array([0.1, 0.2, -0.3, 0.0])
SUM = 0.1 + 0.2 - 0.3


class Cancelling(Wrapper):
    """Pays the acts of each environment step in turn, whatever they are; their sum is not exactly 0."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, SUM / 4, terminated, truncated, info

    def get_actor_rewards(self) -> np.ndarray:
        inside = self.env.get_actor_rewards()
        return PAID[: 1 if inside is None else len(inside)]
