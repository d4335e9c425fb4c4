"""Wrappers that normalise observations, from callables and from configurations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.config.factories import Factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.viewer.normalizers import Normalizer, normalizers_in, normalizers_of, unit_of

ONCE, RUNNING = "ObservationNormalizationWrapper", "RunningObservationNormalizationWrapper"
PATH = f"maze_pl.envs.wrappers.{ONCE}"
BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


def test_wrappers_are_found_in_order_with_the_observations_that_they_leave() -> None:
    wrappers: list[Any] = [
        RewardScalingWrapper,
        Factory(PATH, {"exclude": ["goal"]}),
        partial(ObservationNormalizationWrapper.wrap, exclude=["state"]),
        partial(Factory(PATH), exclude=None),
        RunningObservationNormalizationWrapper,
        lambda env: ObservationNormalizationWrapper(env),  # does not tell
    ]
    excluded = [frozenset({"goal"}), frozenset({"state"}), frozenset(), frozenset()]
    names = [ONCE, ONCE, ONCE, RUNNING]
    assert normalizers_in(wrappers) == [Normalizer(*both) for both in zip(names, excluded, strict=True)]
    assert normalizers_in(None) == []


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"wrappers": [{"class_path": PATH, "init_args": {"exclude": ["a"]}}]}, [Normalizer(ONCE, frozenset({"a"}))]),
        ({"wrappers": [PATH, {"class_path": "os.system"}, {"class_path": "maze_pl.gone.Wrapper"}]}, [Normalizer(ONCE)]),
        ({"wrappers": None}, []),
        (None, []),
    ],
)
def test_wrappers_of_a_configuration_are_found(config: Any, found: list[Normalizer]) -> None:
    assert normalizers_of(config) == found


def test_a_unit_names_all_wrappers_that_normalise_an_observation() -> None:
    normalizers = [Normalizer(ONCE, frozenset({"goal"})), Normalizer(RUNNING)]
    assert unit_of("state", BOX, normalizers) == f"after {ONCE} and {RUNNING}"
    assert unit_of("goal", BOX, normalizers) == f"after {RUNNING}"
    assert unit_of("goal", BOX, normalizers[:1]) is None
    assert unit_of("state", spaces.Discrete(3), normalizers) is None
