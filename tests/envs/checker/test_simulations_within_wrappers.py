"""A simulation that relies on its wrappers is examined within them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs import ActionConversionInterface, CoreEnv, GymMazeEnv, MazeEnv, ObservationConversionInterface
from maze_pl.envs.checker import check_env
from maze_pl.envs.wrappers import MazeEnvMonitoringWrapper, TimeLimitWrapper


class Prices(gymnasium.Env[Any, Any]):
    """Buys or sells at one of 100 recorded prices; there is none after the last one."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.hour = 0
        self.prices = self.np_random.random(100).astype(np.float32)
        return self.prices[:1].copy(), {}

    def step(self, action: Any) -> Any:
        self.hour += 1
        price = self.prices[self.hour]
        return np.array([price]), float(price) * (1 - 2 * int(action)), False, False, {}


class Gates(gymnasium.Env[Any, Any]):
    """Has three gates, of which only open ones may be taken."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(0, 1, (1,), np.float32), "open": spaces.Box(0, 1, (3,), np.float32)}
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        if not self.open[action]:
            raise ValueError(f"gate {action} is closed")
        return self._seen(), float(self.np_random.random()), False, False, {}

    def _seen(self) -> dict[str, Any]:
        self.open = np.array([1, *self.np_random.integers(2, size=2)], np.float32)
        return {"place": self.np_random.random(1).astype(np.float32), "open": self.open.copy()}


class OpenGatesOnly(TimeLimitWrapper):
    """Declares the mask, and limits the time."""

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        return {0: {"action": "open"}}


def test_the_simulation_is_not_played_beyond_the_time_limit_of_a_wrapper() -> None:
    report = check_env(lambda: TimeLimitWrapper(GymMazeEnv(Prices()), 96), n_steps=300)
    assert report.ok, str(report)


def test_the_simulation_gets_no_action_that_the_mask_of_a_wrapper_forbids() -> None:
    report = check_env(lambda: OpenGatesOnly(GymMazeEnv(Gates()), 20), n_steps=300)
    assert report.ok, str(report)


class OnceEach(ObservationConversionInterface):
    """Converts each state once."""

    def __init__(self) -> None:
        self.latest = -1

    def space(self) -> spaces.Dict:
        return spaces.Dict({"number": spaces.Box(0, 1e6, (1,), np.float32)})

    def maze_to_space(self, maze_state: int) -> Any:
        if maze_state == self.latest:
            raise RuntimeError("converted twice")
        self.latest = maze_state
        return {"number": np.array([maze_state], np.float32)}


class Pushed(ActionConversionInterface):
    """One of two buttons is pushed."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({"button": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return int(action["button"])

    def maze_to_space(self, maze_action: Any) -> Any:
        return {"button": maze_action}


class Counter(CoreEnv):
    """Counts the pushes of ten steps."""

    number = 0

    def step(self, maze_action: Any) -> Any:
        self.number += 1
        return self.number, float(maze_action), False, self.number % 10 == 0, {}

    def reset(self) -> Any:
        self.number = 10 * (self.number // 10 + 1)
        return self.number

    def seed(self, seed: int) -> None:
        self.number = 0

    def close(self) -> None:
        self.number = 0

    def get_maze_state(self) -> Any:
        return self.number


def test_without_a_measurement_alone_the_speed_within_the_wrappers_is_reported() -> None:
    report = check_env(lambda: MazeEnv(Counter(), {0: Pushed()}, {0: OnceEach()}), n_steps=100)
    (speed,) = (line for line in report.lines if line.name == "speed")
    errors = [line.explanation for line in report.lines if line.verdict == "error" and line.name == "conversions"]
    assert errors and "converted twice" in errors[0], str(report)
    assert speed.verdict == "ok" and "acts per second within LogStatsWrapper" in speed.explanation, str(report)
    assert "alone" not in speed.explanation


class Spoiling(OnceEach):
    """Changes the states that it converts."""

    def maze_to_space(self, maze_state: Any) -> Any:
        maze_state["number"] += 1
        return {"number": np.array([maze_state["number"]], np.float32)}


class OpenCounter(Counter):
    """Has states that can be changed."""

    def step(self, maze_action: Any) -> Any:
        _, *rest = super().step(maze_action)
        return self.get_maze_state(), *rest

    def reset(self) -> Any:
        super().reset()
        return self.get_maze_state()

    def get_maze_state(self) -> Any:
        return {"number": self.number}


def test_conversions_are_checked_within_monitoring_that_is_off() -> None:
    def make() -> Any:
        env: Any = MazeEnv(OpenCounter(), {0: Pushed()}, {0: Spoiling()})
        return MazeEnvMonitoringWrapper(env, False, False, False)

    report = check_env(make, n_steps=50)
    errors = [line.explanation for line in report.lines if line.verdict == "error" and line.name == "conversions"]
    assert errors and "Spoiling.maze_to_space changes the state that it receives" in errors[0], str(report)
