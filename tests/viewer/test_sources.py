"""Episodes of rollouts whose run is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maze_pl.agents import RandomPolicy
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import rollout
from maze_pl.runs.rollout_table import episode_table
from maze_pl.viewer.playing import PlayOptions
from maze_pl.viewer.sources import episodes_of_paths

CONFIG = {"env": {"class_path": "maze_pl.envs.GymMazeEnv", "init_args": {"env": "CartPole-v1"}}}


def test_a_damaged_run_leaves_its_rollouts_to_be_viewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run" / "rollouts" / "one"
    (folder / "trajectories").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("[broken")
    (folder / "config.yaml").write_text(json.dumps(CONFIG))
    (played,) = rollout(lambda: GymMazeEnv("CartPole-v1"), RandomPolicy, 1, max_steps=5)
    assert played.spaces is not None
    (folder / "episodes.csv").write_bytes(episode_table([played]))
    played.spaces.save(folder / "trajectories" / f"{played.episode_id}.spaces")
    episodes, _ = episodes_of_paths([folder], PlayOptions(trust=True))
    assert len(episodes) == 1 and episodes[0].decisions is None
    told = capsys.readouterr().err
    for missing in ("probabilities", "pictures"):
        assert f"there are no {missing}: " in told and "config.yaml cannot be read" in told
