"""Episodes of rollouts, and the runs that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maze_pl.agents import RandomPolicy
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import rollout
from maze_pl.runs.rollout_table import episode_table
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.playing import PlayOptions
from maze_pl.viewer.sources import episodes_of_paths

CONFIG = {"env": {"class_path": "maze_pl.envs.GymMazeEnv", "init_args": {"env": "CartPole-v1"}}}


def write_rollout(folder: Path, **config: Any) -> None:
    """Write the folder of a rollout with one episode."""
    (folder / "trajectories").mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps({**CONFIG, **config}))
    (played,) = rollout(lambda: GymMazeEnv("CartPole-v1"), RandomPolicy, 1, max_steps=5)
    assert played.spaces is not None
    (folder / "episodes.csv").write_bytes(episode_table([played]))
    played.spaces.save(folder / "trajectories" / f"{played.episode_id}.spaces")


def test_a_run_that_a_rollout_names_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rollout(Path("gone"), run="outputs/run")
    assert episodes_of_paths([Path("gone")], PlayOptions())[0][0].decisions is None
    assert "there are no probabilities: the checkpoint best of outputs/run is missing" in capsys.readouterr().err
    Path("outputs/run/checkpoints").mkdir(parents=True)
    Path("outputs/run/checkpoints/best.ckpt").write_bytes(b"another one")
    digest = {"file": "outputs/run/checkpoints/best.ckpt", "sha256": 64 * "0"}
    entry = {"command": "maze-pl rollout", "versions": {}, "git": None, "checkpoint": digest}
    Path("gone/provenance.json").write_text(json.dumps({"commands": [entry]}))
    assert episodes_of_paths([Path("gone")], PlayOptions())[0][0].decisions is None
    assert "outputs/run/checkpoints/best.ckpt is not the checkpoint that played" in capsys.readouterr().err
    for silent, config in (("random", {}), ("heuristic", {"run": "outputs/run", "policy": "heuristic"})):
        write_rollout(Path(silent), **config)
        episodes_of_paths([Path(silent)], PlayOptions())
        assert capsys.readouterr().err == ""


def test_wrappers_of_a_rollout_that_change_rewards_are_named(tmp_path: Path) -> None:
    paths = ["maze_pl.envs.wrappers.TimeLimitWrapper", "maze_pl.envs.wrappers.RewardScalingWrapper", "os.system"]
    write_rollout(tmp_path / "one", wrappers=[{"class_path": path, "init_args": {}} for path in paths])
    (episode,) = episodes_of_paths([tmp_path / "one"], PlayOptions())[0]
    assert episode.reward_wrappers == ["RewardScalingWrapper"]


def test_normalised_observations_of_a_rollout_have_a_unit(tmp_path: Path) -> None:
    path = "maze_pl.envs.wrappers.ObservationNormalizationWrapper"
    for name, wrappers in (("plain", []), ("normalised", [{"class_path": path, "init_args": {}}])):
        write_rollout(tmp_path / name, wrappers=wrappers)
        document = episode_document(episodes_of_paths([tmp_path / name], PlayOptions())[0])
        assert document["title"] == f"{tmp_path.name}/{name}: random"
        observation = document["episodes"][0]["observations"]["0"]["observation"]
        assert observation["unit"] == (None if name == "plain" else "after ObservationNormalizationWrapper")


def test_a_damaged_run_leaves_its_rollouts_to_be_viewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run" / "rollouts" / "one"
    write_rollout(folder)
    (tmp_path / "run" / "config.yaml").write_text("[broken")
    episodes, _ = episodes_of_paths([folder], PlayOptions(trust=True))
    assert len(episodes) == 1 and episodes[0].decisions is None
    told = capsys.readouterr().err
    for missing in ("probabilities", "pictures"):
        assert f"there are no {missing}: " in told and "config.yaml cannot be read" in told
