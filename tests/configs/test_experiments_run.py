"""Every experiment that comes with maze_pl trains: one rollout, one evaluation, and what it saved acts again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import maze_pl
from maze_pl import search_path
from maze_pl.__main__ import main

NAMES = sorted(path.stem for path in search_path.shipped_folder().glob("[!b]*.yaml"))  # without bc: there are no files
SMALL = [
    *("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--data.epoch_length", "1", "--trainer.max_epochs", "1"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--data.n_normalization_samples", "50"),
]


def test_there_are_ppo_and_a2c_for_the_same_environments() -> None:
    others = "ppo_catch", "ppo_cartpole_recurrent", "ppo_lunar_lander_fine_tuning"
    names = {name for name in NAMES if "cutting_2d" not in name and name not in others}
    environments = {name.partition("_")[2] for name in names}
    assert {"cartpole", "acrobot", "pendulum", "lunar_lander", "lunar_lander_continuous"} <= environments
    assert names == {f"{algorithm}_{environment}" for algorithm in ("a2c", "ppo") for environment in environments}


@pytest.mark.parametrize("name", NAMES)
def test_experiments_train(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    batch = ["--model.batch_size", "50"] if name.startswith("ppo") else []
    assert main(["fit", "--config", name, *SMALL, *batch, "--run_dir", "here"]) == 0
    with Path("here", "metrics.csv").open(encoding="utf-8") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["100"]
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.act(observation, env.actor_id().step_key, memory={}))
    env.close()
