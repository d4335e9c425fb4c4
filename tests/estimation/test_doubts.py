"""Recordings whose observations may not be those that the agent was trained with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import RunningObservationNormalizationWrapper
from maze_pl.estimation.doubts import doubts_of_estimates, doubts_of_records
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.runs.rollout import rollout
from tests.runs.recording_runs import write_checkpoint, write_rollout

NAME = f"{RunningObservationNormalizationWrapper.__module__}.RunningObservationNormalizationWrapper"
CART = partial(GymMazeEnv, "CartPole-v1")


def run_with(mean: float, folder: Path) -> Path:
    """The checkpoint of a run with these statistics."""
    return write_checkpoint(folder / "checkpoints" / "best.ckpt", {NAME: {"mean": np.full(4, mean)}})


def doubts_of(episodes: list[Any], agent: Path | None, behaviour: Any = None) -> list[str]:
    acts = read_acts(episodes, Spec.of(CART()), CART, trust=True)
    return doubts_of_records(acts, agent, behaviour, trust=False)


def record() -> SpacesTrajectoryRecord:
    """An episode in memory."""
    (played,) = rollout(CART, "random", max_steps=3, seed=9)
    assert played.spaces is not None
    return played.spaces


def test_every_run_that_recorded_with_other_statistics_is_named(tmp_path: Path) -> None:
    agent, other = run_with(0.0, tmp_path / "a"), run_with(1.0, tmp_path / "b")
    write_rollout(tmp_path / "a/rollouts/one", played_by=agent, seed=1)
    write_rollout(tmp_path / "a/rollouts/two", played_by=agent, seed=2)
    of_other = write_rollout(tmp_path / "b/rollouts/one", played_by=other, seed=3)
    assert doubts_of([tmp_path / "a/rollouts"], agent) == []
    for episodes in ([tmp_path / "a/rollouts", next(of_other.iterdir())], [tmp_path]):
        (doubt,) = doubts_of(episodes, agent)
        assert f"are not the same in the recording checkpoint {other} and the agent's run" in doubt
    assert doubts_of([tmp_path], None) == []


def test_episodes_of_a_run_that_has_trained_on_are_doubted(tmp_path: Path) -> None:
    write_rollout(tmp_path / "a/rollouts/one", played_by=run_with(0.0, tmp_path / "a"))
    (doubt,) = doubts_of([tmp_path / "a"], run_with(1.0, tmp_path / "a"))
    assert f"{tmp_path}/a/checkpoints/best.ckpt is not the checkpoint that played the episodes in" in doubt


def test_the_named_behaviour_stands_for_an_unknown_run(tmp_path: Path) -> None:
    agent = run_with(0.0, tmp_path / "a")
    run_with(1.0, tmp_path / "b")
    write_rollout(tmp_path / "a/rollouts/one", played_by=agent)
    episodes = [tmp_path / "a", record()]
    (doubt,) = doubts_of(episodes, agent)
    assert "unless they were normalised by the statistics of the agent's" in doubt
    assert doubts_of(episodes, agent, tmp_path / "a") == []
    (doubt,) = doubts_of(episodes, agent, tmp_path / "b")
    assert f"are not the same in the run {tmp_path}/b and the agent's run" in doubt


def test_states_are_not_doubted_as_they_are_converted(tmp_path: Path) -> None:
    agent, other = run_with(0.0, tmp_path / "a"), run_with(1.0, tmp_path / "b")
    write_rollout(tmp_path / "b/rollouts/one", played_by=other, form="states")
    assert doubts_of([tmp_path / "b"], agent) == []


def test_a_copy_named_as_behaviour_stands_for_a_checkpoint_that_has_changed(tmp_path: Path) -> None:
    best = run_with(0.0, tmp_path / "a")
    write_rollout(tmp_path / "a/rollouts/one", played_by=best)
    copy = best.rename(tmp_path / "copy.ckpt")
    run_with(1.0, tmp_path / "a")
    assert doubts_of([tmp_path / "a"], copy, copy) == []
    (doubt,) = doubts_of([tmp_path / "a"], copy, tmp_path / "a")
    assert "is not the checkpoint that played the episodes" in doubt


def test_clones_of_records_without_an_environment_are_not_doubted(tmp_path: Path) -> None:
    write_rollout(tmp_path / "a/rollouts/one", played_by=run_with(0.0, tmp_path / "a"))
    clone = write_checkpoint(tmp_path / "clone/checkpoints/best.ckpt", {}, env=None)
    assert doubts_of([tmp_path / "a"], clone) == []
    blank = write_checkpoint(tmp_path / "b/checkpoints/best.ckpt", {})
    assert len(doubts_of([tmp_path / "a"], blank)) == 1


def test_rewards_of_agents_that_cancel_out_are_doubted() -> None:
    spec, episodes = Spec.of(CART()), [record()]
    acts = read_acts(episodes, spec)
    game = replace(acts, reward=np.array([1.0, -2.0, 1.0 + 1e-12]), paid=np.array([4.0]))
    size = float("nan")
    fault = "the rewards of the agents add up to 0 in each episode, and only their sum is estimated"
    assert fault not in doubts_of_estimates(size, acts, np.zeros(len(acts.reward)), None)
    assert fault in doubts_of_estimates(size, game, np.zeros(len(game.reward)), None)
