"""Wrappers that normalise observations, from callables and from configurations."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.config.factories import Factory
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.runs.rollout import rollout
from maze_pl.viewer.normalizers import Normalizer, normalizers_in, normalizers_of, unit_of
from maze_pl.viewer.observations import observations_of

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
    is_running = [name == RUNNING for name in names]
    assert normalizers_in(wrappers) == [Normalizer(*one) for one in zip(names, excluded, is_running, strict=True)]
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
    normalizers = [Normalizer(ONCE, frozenset({"goal"})), Normalizer(RUNNING, is_running=True)]
    assert unit_of("state", [BOX, BOX], normalizers) == f"after {ONCE} and {RUNNING}"
    assert unit_of("goal", [BOX], normalizers) == f"after {RUNNING}"
    assert unit_of("goal", [BOX], normalizers[:1]) is None
    assert unit_of("state", [spaces.Discrete(3)], normalizers) is None
    assert unit_of("state", [BOX, spaces.Box(-1.0, 1.0, (2,))], normalizers[1:]) is None  # in another sub-step


class Various(gymnasium.Env[Any, Any]):
    """Observes Boxes of all kinds that running statistics may leave unchanged."""

    observation_space = spaces.Dict(
        {
            "state": spaces.Box(-5.0, 5.0, (2,)),
            "flag": spaces.Box(0.0, 1.0, (2,)),
            "bytes": spaces.Box(0, 255, (4,), np.uint8),
            "cube": spaces.Box(-1.0, 1.0, (2, 2, 2)),
            "choice": spaces.Discrete(3),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, True, False, {}


RUNNING_PATH = f"maze_pl.envs.wrappers.{RUNNING}"


@pytest.mark.parametrize(
    "wrapper",
    [
        RunningObservationNormalizationWrapper,
        partial(RunningObservationNormalizationWrapper, clip_range=(0.1, 1)),
        Factory(RUNNING_PATH, {"clip_range": [0.1, 0.7]}),
        Factory(RUNNING_PATH, {"clip_range": [None, 5.0]}),
    ],
)
def test_observations_that_running_statistics_leave_unchanged_keep_their_bounds(wrapper: Any) -> None:
    wrappers = [wrapper]
    played = rollout(lambda: GymMazeEnv(Various()), wrappers=wrappers)[0]
    assert played.spaces is not None
    shown = observations_of(played.spaces, 0, normalizers_in(wrappers))
    normalized = RunningObservationNormalizationWrapper(GymMazeEnv(Various())).strategies
    assert {name for name, content in shown.items() if content["unit"] is not None} == {*normalized} == {"state"}
    assert [(shown[name]["low"], shown[name]["high"]) for name in ("state", "flag")] == [(None, None), (0.0, 1.0)]
