"""The doctor finds conversions of actions whose inverse is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.envs.checker import check_env
from maze_pl.envs.checker.inverses import Inverses, is_alike
from maze_pl.envs.wrappers import TimeLimitWrapper


@dataclass
class Dispatch:
    """An action of the battery."""

    power: float
    mode: str


class Opaque:
    """An action that cannot be compared."""


class Battery(CoreEnv):
    """Is charged or discharged."""

    def __init__(self) -> None:
        super().__init__()
        self.charge = 0.0

    def step(self, maze_action: Any) -> Any:
        power = maze_action.power if isinstance(maze_action, Dispatch) else 0.0
        self.charge = float(np.clip(self.charge + power / 100, -1, 1))
        return self.charge, self.charge, False, False, {}

    def reset(self) -> Any:
        self.charge = 0.0
        return self.charge

    def seed(self, seed: int) -> None:
        """Nothing is random."""

    def close(self) -> None:
        """Nothing is open."""

    def get_maze_state(self) -> Any:
        return self.charge


class Charge(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"charge": spaces.Box(-1, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> Any:
        return {"charge": np.array([maze_state], np.float32)}


class Power(ActionConversionInterface):
    """Scales and clips the power, so that several actions mean the same."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({"power": spaces.Box(-1, 1, (1,), np.float32), "mode": spaces.Discrete(2)})

    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        power = float(np.clip(action["power"][0] * 25, -20, 20))
        return Dispatch(power, ("slow", "fast")[action["mode"]])

    def maze_to_space(self, maze_action: Any) -> Any:
        power = np.array([maze_action.power / 25], np.float32)
        return {"power": power, "mode": ("slow", "fast").index(maze_action.mode)}


class OtherScale(Power):
    def maze_to_space(self, maze_action: Any) -> Any:
        return {**super().maze_to_space(maze_action), "power": np.array([maze_action.power / 20 / 25], np.float32)}


class OneMode(Power):
    def maze_to_space(self, maze_action: Any) -> Any:
        return {**super().maze_to_space(maze_action), "mode": 0}


class NoInverse(Power):
    maze_to_space = ActionConversionInterface.maze_to_space


class Drawing(Power):
    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return Dispatch(float(np.random.default_rng().normal()), "slow")


class Incomparable(OtherScale):
    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return Opaque()

    def maze_to_space(self, maze_action: Any) -> Any:
        return {"power": np.zeros(1, np.float32), "mode": 0}


class Arrays:
    """An action whose comparison fails, as it takes the truth of an array."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arrays) and bool(self.values == other.values)


class OfArrays(Incomparable):
    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return Arrays(np.zeros(2))


def make_battery(conversion: type[ActionConversionInterface]) -> Any:
    return TimeLimitWrapper.wrap(MazeEnv(Battery(), {0: conversion()}, {0: Charge()}), max_episode_steps=20)


@pytest.mark.parametrize("conversion", [OtherScale, OneMode])
def test_a_wrong_inverse_is_an_error(conversion: type[ActionConversionInterface]) -> None:
    report = check_env(partial(make_battery, conversion), n_steps=60)
    (finding,) = [line for line in report.lines if line.name == "conversions"]
    fault = f"{conversion.__name__}.maze_to_space is not the inverse of space_to_maze: "
    assert finding.verdict == "error" and finding.explanation.startswith(fault)


@pytest.mark.parametrize("conversion", [Power, NoInverse, Drawing, Incomparable, OfArrays])
def test_inverses_that_are_right_or_cannot_be_judged_are_no_fault(conversion: type[ActionConversionInterface]) -> None:
    inverses = Inverses()
    space = conversion().space()
    space.seed(0)
    for _ in range(50):
        inverses.add(conversion(), space.sample(), 0.0)
    assert not list(inverses.faults())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, np.int64(1), True),
        (1.0, 1.00001, True),
        (1.0, 1.1, False),
        (np.zeros(2), np.zeros(3), False),
        ("a", "a", True),
        ("a", "b", False),
        (None, 1, False),
        ((1, [2.0]), (1, [2.0]), True),
        ((1, 2), (1, 2, 3), False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (Dispatch(1.0, "slow"), Dispatch(1.0, "fast"), False),
        (Opaque(), Opaque(), True),
    ],
)
def test_actions_are_compared_up_to_rounding(one: Any, other: Any, expected: bool) -> None:
    assert is_alike(one, other) is expected
