"""A flat environment that keeps a log of its episodes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


@dataclass
class Log:
    """What happened to all environments of a factory, in the order in which they were made.

    Attributes:
        seeds: For each environment, the seeds of its episodes.
        rewards: For each environment and each of its episodes, the rewards.
        closed: How many were closed.
    """

    seeds: list[list[int | None]] = field(default_factory=list)
    rewards: list[list[list[float]]] = field(default_factory=list)
    closed: int = 0


class Drift(gymnasium.Env[Any, Any]):
    """Episodes of 3 to 6 steps from a random start; rewards are the start plus the action. Shows (start, time)."""

    def __init__(self, log: Log | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.log = Log() if log is None else log
        self.number = len(self.log.seeds)
        self.log.seeds.append([])
        self.log.rewards.append([])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.log.seeds[self.number].append(seed)
        self.log.rewards[self.number].append([])
        self.start, self.time = float(self.np_random.random()), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = self.start + float(action[0])
        self.log.rewards[self.number][-1].append(reward)
        return self._observe(), reward, self.time == 3 + int(4 * self.start), False, {}

    def close(self) -> None:
        self.log.closed += 1

    def _observe(self) -> Any:
        return np.array([self.start, self.time], np.float32)


class Moody(Drift):
    """An environment that ignores its seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=int(np.random.default_rng().integers(2**31)))


class Failing(Drift):
    """Fails in its second episode."""

    def reset(self, **options: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        if self.count == 2:
            raise OSError("the machine is on fire")
        return super().reset(**options)


class Mortal(Drift):
    """Kills its process in a step, once for each of the files that it is given."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def step(self, action: Any) -> Any:
        if self.time == 2:
            for file in self.folder.iterdir():
                file.unlink(missing_ok=True)
                self.die()
        return super().step(action)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Stuck(Mortal):
    """Does not return from a step, once for each of the files that it is given."""

    def die(self) -> None:
        time.sleep(1000)


class Endless(Drift):
    """Never ends."""

    def step(self, action: Any) -> Any:
        observation, reward, *_ = super().step(action)
        return observation, reward, False, False, {}


class Iterating(Endless):
    """Holds an iterator."""

    def reset(self, **options: Any) -> Any:
        self.numbers = iter(range(10**9))
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self.start = float(next(self.numbers))
        return super().step(action)
