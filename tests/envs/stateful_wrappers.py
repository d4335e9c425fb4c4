"""An endless walk, and wrappers around it whose state outlives an episode."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, StructuredEnv, Wrapper


class Walk(gymnasium.Env[Any, Any]):
    """Steps to the left or to the right on a line; each is paid the price.

    Args:
        n_steps: Number of steps of an episode.
    """

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, n_steps: int = 10) -> None:
        self.n_steps, self.price = n_steps, 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(100)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 2 * int(action) - 1
        self.time += 1
        return self._observe(), self.price, False, self.time >= self.n_steps, {}

    def _observe(self) -> Any:
        return np.array([self.place, self.time], np.float32)


def make_walk(n_steps: int = 10) -> GymMazeEnv:
    return GymMazeEnv(Walk(n_steps))


class RisingPriceWrapper(Wrapper):
    """Raises the price from episode to episode: 1, 2, 3. Observations do not show it."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.level = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.level += 1
        self.env.core_env.env.unwrapped.price = float(self.level)
        return self.env.reset(seed=seed, options=options)

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.level = int(state["level"])


class GrowingLimitWrapper(Wrapper):
    """Cuts episodes off, each of them later than the one before.

    Args:
        env: The environment.
        limit: Number of steps of the first episode.
        growth: Number of steps by which the next one is longer.
    """

    def __init__(self, env: StructuredEnv, limit: int = 3, growth: int = 1) -> None:
        super().__init__(env)
        self.limit, self.growth, self.n_steps = limit, growth, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.n_steps = 0
        return self.env.reset(seed=seed, options=options)

    def step_in_parts(self, action: Any) -> Generator[Any, Any, Any]:
        observation, reward, terminated, truncated, info = yield action
        self.n_steps += 1
        if self.n_steps >= self.limit:
            truncated = True
            self.limit += self.growth
        return observation, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        return {"limit": self.limit, "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.limit, self.n_steps = int(state["limit"]), int(state["n_steps"])


class TurningWrapper(Wrapper):
    """Exchanges both actions after every seven steps, whatever the episode. Its state is the array itself."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.n_steps = np.zeros(1, np.int64)

    def step_in_parts(self, action: Any) -> Generator[Any, Any, Any]:
        self.n_steps += 1
        turned = int(self.n_steps[0]) // 7 % 2
        return (yield {"action": np.int64(abs(int(action["action"]) - turned))})

    def state_dict(self) -> dict[str, Any]:
        return {"n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_steps = state["n_steps"]
