"""Every experiment that comes with maze_pl trains: one rollout, one evaluation, and what it saved acts again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path

FROM_FILES = "bc", "sacfd"  # which are not there
NAMES = sorted(
    path.stem for path in search_path.shipped_folder().glob("*.yaml") if not path.stem.startswith(FROM_FILES)
)
SMALL = [
    *("--data.epoch_length", "1", "--trainer.max_epochs", "1"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--data.n_normalization_samples", "50"),
]
QUICK = "ppo_cartpole", "sac_cartpole"
OWN = {  # options of each algorithm with which one batch is small
    "a2c": ["--data.n_envs", "2", "--data.n_rollout_steps", "50"],
    "ppo": ["--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50"],
    "impala": ["--data.num_actors", "2", "--data.actors_batch_size", "2", "--data.n_rollout_steps", "50"],
    "sac": ["--data.num_actors", "2", "--data.n_rollout_steps", "2", "--data.initial_buffer_size", "96"],
    "es": ["--data.n_rollouts_per_update", "2", "--data.max_steps", "50", "--data.shared_noise_table_size", "100000"],
}
OWN["sac"] += ["--data.batch_size", "16", "--data.num_batches_per_iter", "2"]
OWN["dqn"] = OWN["td3"] = OWN["sac"]


def test_there_are_ppo_and_a2c_for_the_same_environments() -> None:
    others = "ppo_auto", "ppo_cartpole_recurrent", "ppo_lunar_lander_fine_tuning", "ppo_pettingzoo"
    names = {name for name in NAMES if name[:3] in ("a2c", "ppo") and "cutting_2d" not in name and name not in others}
    environments = {name.partition("_")[2] for name in names}
    assert {"cartpole", "acrobot", "pendulum", "lunar_lander", "lunar_lander_continuous"} <= environments
    assert names == {f"{algorithm}_{environment}" for algorithm in ("a2c", "ppo") for environment in environments}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_experiments_train(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = name.partition("_")[0]
    assert main(["fit", "--config", name, *SMALL, *OWN[algorithm], "--run_dir", "here"]) == 0
    with Path("here", "metrics.csv").open(encoding="utf-8") as file:
        (steps,) = [int(row["step"]) for row in csv.DictReader(file)]
    assert 0 < steps <= 100
    assert steps == 100 or algorithm == "es"  # whose episodes end by themselves
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.act(observation, env.actor_id().step_key, policy_state={}))
    env.close()
