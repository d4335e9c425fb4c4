"""The shipped files of the job shop."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.envs.job_shop import JobShopEnvironment, StructuredJobShopEnvironment

TINY = [
    *("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50", "--data.epoch_length", "1"),
    *("--trainer.max_epochs", "1", "--data.evaluators", "{eval: {n_episodes: 2}}", "--run_dir", "here"),
]


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [("job_shop", JobShopEnvironment, (15, 1)), ("flexible_job_shop", StructuredJobShopEnvironment, (10, 3))],
)
def test_group_files_describe_the_documented_environments(name: str, kind: type, sizes: tuple[int, int]) -> None:
    node = yaml.safe_load((search_path.shipped_folder() / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    env = Factory(node["class_path"], node["init_args"])()
    assert type(env) is kind
    assert (env.core_env.max_jobs, env.core_env.max_alternatives) == sizes
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


@pytest.mark.slow
def test_the_flexible_job_shop_trains_with_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--data.env", "env/flexible_job_shop", "--model.networks", "model/flexible_job_shop"]
    assert main(["fit", "--config", "ppo_job_shop", *options, *TINY]) == 0
    assert list(maze_pl.load_env("here").action_spaces_dict) == [0, 1]
