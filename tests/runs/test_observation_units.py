"""Statistics of normalised observations: those of the recordings, and those of the agent."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.__main__ import main
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.runs.observation_units import Recorder, are_equal, doubts_of_observations, recorder_of
from maze_pl.runs.rollout import rollout

RUNNING = RunningObservationNormalizationWrapper
CART = partial(GymMazeEnv, "CartPole-v1")


def data_of(*wrappers: Any, seed: int = 0) -> RolloutDataModule:
    return RolloutDataModule(env=CART, wrappers=list(wrappers), seed=seed, n_normalization_samples=20)


@pytest.mark.parametrize("kind", [RUNNING, ObservationNormalizationWrapper])
def test_other_statistics_than_those_of_the_recording_run_are_warned_of(kind: Any) -> None:
    def doubts(agent: RolloutDataModule, recorder: RolloutDataModule) -> list[str]:
        return doubts_of_observations(agent, Recorder("the run old", recorder))

    agent = data_of(kind, ReturnNormalizationRewardWrapper)
    assert doubts(agent, data_of(kind)) == []
    found = f"the statistics of {kind.__name__} are not the same in the run old and the agent's run: record states"
    for one, other in ((agent, data_of(kind, seed=1)), (agent, data_of()), (data_of(), agent)):
        (doubt,) = doubts(one, other)
        assert found in doubt
    assert doubts(data_of(), data_of(ReturnNormalizationRewardWrapper)) == []


def test_an_unknown_recorder_is_warned_of_only_if_the_agent_has_statistics() -> None:
    (doubt,) = doubts_of_observations(data_of(RUNNING), None)
    assert f"unless they were normalised by the statistics of the agent's {RUNNING.__name__}, record states" in doubt
    for agent in (None, data_of(), data_of(ReturnNormalizationRewardWrapper)):
        assert doubts_of_observations(agent, None) == []


@pytest.mark.slow
def test_the_configuration_of_a_rollout_tells_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "--config", "ppo_auto", "--trainer.max_epochs", "1", "--data.epoch_length", "1"]
    assert main([*fit, "--run_dir", "run", "--data.evaluators", "{}"]) == 0
    assert main(["rollout", "run", "--n_episodes", "2", "--trajectories", "spaces", "--output_dir", "played"]) == 0
    recorder = recorder_of([next(Path("played").rglob("*.spaces"))], trust=False)
    assert recorder is not None
    assert recorder.name == "the recording run run"
    assert doubts_of_observations(recorder.data, recorder) == []
    Path("run").rename("moved")
    assert recorder_of(["played"], trust=False) is None


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
