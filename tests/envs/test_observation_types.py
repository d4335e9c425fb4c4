"""Observations of another data type than that of their space: converted if it can hold them, refused if not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.collect.collector import Collector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, MazeEnv, Wrapper, check_env
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.structured_env import Observation
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import SpacesRecordingWrapper


class Levels(gymnasium.Env[Any, Any]):
    """Observes given levels, one after the other, and the last one for ever.

    Args:
        dtype: Type of the space.
        levels: The levels, the first one after reset.
        length: Number of steps until an episode is truncated.
        is_composed: Whether the level is a part of a Dict space.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, dtype: Any, levels: list[Any], length: int = 100, is_composed: bool = False) -> None:
        low, high = (0, 1) if dtype is np.bool_ else (-100, 100)
        space = spaces.Box(max(low, 0) if np.dtype(dtype).kind == "u" else low, high, (2,), dtype)
        self.observation_space = spaces.Dict({"level": space}) if is_composed else space
        self.levels, self.length, self.is_composed = levels, length, is_composed

    def _observe(self) -> Any:
        level = np.array([0, next(self.coming)], self.levels[-1].dtype)
        return {"level": level} if self.is_composed else level

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.coming: Iterator[Any] = chain(self.levels, repeat(self.levels[-1]))
        self.n_steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return self._observe(), 1.0, False, self.n_steps == self.length, {}


class AsTheyCome(GymObservationConversion):
    """Gives observations in the type in which they come."""

    def maze_to_space(self, maze_state: Any) -> Observation:
        return {"observation": maze_state}


class Transparent(Wrapper):
    """Changes nothing, but is in the way."""


def plain(*arguments: Any, **options: Any) -> Any:
    return GymMazeEnv(Levels(*arguments, **options))


def layered(*arguments: Any, **options: Any) -> Any:
    return Transparent.wrap(plain(*arguments, **options))


def composed(*arguments: Any, **options: Any) -> Any:
    return plain(*arguments, is_composed=True, **options)


def own_conversion(*arguments: Any, **options: Any) -> Any:
    env = plain(*arguments, **options)
    conversion = AsTheyCome(env.core_env.env.observation_space)
    return MazeEnv(env.core_env, env.action_conversion_dict, {0: conversion})


def collected(make_env: Callable[[], Any], check: Any, n_steps: int = 6) -> np.ndarray:
    """Observations [T, 2] of a rollout."""
    vector = SequentialVectorEnv([make_env], check=check)
    policy = RandomPolicy({0: vector.spec.steps[0].action_space})
    rollout = Collector(vector, n_steps, torch.Generator().manual_seed(0)).collect(policy)
    ((_, observations),) = rollout.segments[0].observation.items()
    return observations[:, 0].numpy()


FORMS = [plain, layered, composed, own_conversion]


@pytest.mark.parametrize("check", ["fast", "full"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "given", "level"),
    [
        (np.int8, np.int64, 256),
        (np.int8, np.int16, -129),
        (np.int8, np.uint8, 200),
        (np.uint8, np.uint16, 300),
        (np.int32, np.int64, 2**32 + 5),
    ],
)
def test_integers_that_the_type_of_their_space_cannot_hold_are_refused(
    form: Any, check: str, dtype: Any, given: Any, level: int
) -> None:
    fault = f"^environment 0: .* has the value {level}, which its type {np.dtype(dtype)} cannot hold; .*"
    for n_good in (0, 1, 4):
        levels = [given(3)] * n_good + [given(level)]
        with pytest.raises(EnvContractError, match=f"{fault}declare a space of type {np.dtype(given)}"):
            collected(lambda: form(dtype, levels), check)  # noqa: B023
    levels = [given(3)] * 5 + [given(level)] * 2  # of which a rollout of four steps sees none
    assert collected(lambda: form(dtype, levels), check, 4).tolist() == [[0, 3]] * 4


@pytest.mark.parametrize("form", FORMS)
def test_a_final_observation_is_checked_too(form: Any) -> None:
    levels = [*map(np.int64, [3, 4, 5]), np.int64(-300)]
    with pytest.raises(EnvContractError, match="has the value -300, which its type int8 cannot hold"):
        collected(lambda: form(np.int8, levels, length=3), "fast")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "given", "levels"),
    [
        (np.int8, np.int64, [1, -100, 100, 7, 8, 9]),
        (np.int8, np.bool_, [0, 1, 1, 0, 1, 0]),
        (np.float32, np.float64, [0.1, 0.2, 1 / 3, 99.9, -99.9, 5.5]),
        (np.float32, np.int64, [1, -100, 100, 7, 8, 9]),
        (np.float64, np.float32, [0.1, 0.2, 1 / 3, 99.9, -99.9, 5.5]),
    ],
)
def test_other_types_of_the_same_kind_are_converted(form: Any, dtype: Any, given: Any, levels: list[Any]) -> None:
    come = [given(level) for level in levels]
    expected = [[0, float(dtype(level))] for level in come]
    for check in ("fast", "full"):
        observations = collected(lambda: form(dtype, come), check)
        assert (observations.tolist(), observations.dtype) == (expected, dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("level", [300.5, -1.5, np.nan, np.inf])
def test_floats_beyond_a_type_of_integers_are_refused_and_fractions_are_cut_off(form: Any, level: float) -> None:
    levels = [*map(np.float64, [1.0, 2.5, 99.9, level])]
    if form is own_conversion:
        with pytest.raises(EnvContractError, match="has type float64; its space has uint8"):
            collected(lambda: form(np.uint8, levels), "fast")
        return
    assert collected(lambda: form(np.uint8, levels), "fast", 2).tolist() == [[0, 1], [0, 2]]
    with pytest.raises(EnvContractError, match="which its type uint8 cannot hold"):
        collected(lambda: form(np.uint8, levels), "fast")


@pytest.mark.parametrize("form", FORMS)
def test_the_doctor_finds_an_overflow(form: Any) -> None:
    levels = [np.int64(3)] * 5 + [np.int64(256)]
    report = check_env(lambda: form(np.int8, levels, length=20), n_steps=40)
    assert not report.ok
    assert "has the value 256, which its type" in " ".join(str(report).replace("|", "").split())


@pytest.mark.parametrize("length", [5, 4])
def test_records_hold_no_overflow(length: int) -> None:
    """Level 256 is what the fifth act sees, or what follows the last one."""
    levels = [np.int64(3)] * 4 + [np.int64(256)]
    env = SpacesRecordingWrapper.wrap(own_conversion(np.int8, levels, length=length))
    env.reset(seed=0)
    for _ in range(length - 1):
        env.step({"action": 0})
    with pytest.raises(ValueError, match=r"'observation'.* has the value 256, which its type int8 cannot hold"):
        env.step({"action": 0})
