"""Statistics of normalised observations: those of the recordings, and those of the agent."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.runs.observation_units import are_equal, doubts_of_observations
from maze_pl.runs.rollout import rollout

RUNNING = RunningObservationNormalizationWrapper
CART = partial(GymMazeEnv, "CartPole-v1")


def data_of(*wrappers: Any, seed: int = 0) -> RolloutDataModule:
    return RolloutDataModule(env=CART, wrappers=list(wrappers), seed=seed, n_normalization_samples=20)


@pytest.mark.parametrize("kind", [RUNNING, ObservationNormalizationWrapper])
def test_other_statistics_than_those_of_the_recording_run_are_warned_of(kind: Any) -> None:
    agent = data_of(kind, ReturnNormalizationRewardWrapper)
    assert doubts_of_observations(agent, data_of(kind), "old") == []
    (doubt,) = doubts_of_observations(agent, data_of(kind, seed=1), "old")
    assert doubt.endswith(
        f"normalised by other statistics of {kind.__name__} than those of old: "
        "record states (--trajectories states), which are converted"
    )
    assert doubts_of_observations(agent, data_of(), "old") != []


def test_an_unknown_recorder_is_warned_of_only_if_the_agent_has_statistics() -> None:
    (doubt,) = doubts_of_observations(data_of(RUNNING), None, "random")
    assert f"unless the records were made with the statistics of its {RUNNING.__name__}, record states" in doubt
    for agent in (None, data_of(), data_of(ReturnNormalizationRewardWrapper)):
        assert doubts_of_observations(agent, None, "random") == []


def test_statistics_are_compared_in_all_their_parts() -> None:
    first = {"a": {"mean": np.zeros(2), "n": 3}}
    assert are_equal(first, {"a": {"mean": [0.0, 0.0], "n": 3.0}})
    assert not are_equal(first, {"a": {"mean": [0.0, 1.0], "n": 3}})
    assert not are_equal(first, {"b": first["a"]})
    assert not are_equal(first, {"a": {"mean": np.zeros(3), "n": 3}})


@pytest.mark.parametrize("form", ["spaces", "states"])
def test_acts_tell_if_their_observations_are_those_of_the_recording(form: str, tmp_path: Path) -> None:
    (played,) = rollout(CART, "random", max_steps=3, record=(form,))
    record: Any = getattr(played, form)
    acts = read_acts([record], Spec.of(CART()), CART, trust=True)
    assert acts.has_space_records is (form == "spaces")
