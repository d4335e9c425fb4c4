"""The shipped files of vehicle routing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.envs.vehicle_routing import StructuredVehicleRoutingEnvironment, VehicleRoutingEnvironment

TINY = [
    *("--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50", "--data.epoch_length", "1"),
    *("--trainer.max_epochs", "1", "--data.evaluators", "{eval: {n_episodes: 2}}", "--run_dir", "here"),
]


@pytest.mark.parametrize(
    ("name", "kind", "n_vehicles"),
    [
        ("vehicle_routing", VehicleRoutingEnvironment, 1),
        ("structured_vehicle_routing", StructuredVehicleRoutingEnvironment, 3),
    ],
)
def test_group_files_describe_the_documented_environments(name: str, kind: type, n_vehicles: int) -> None:
    node = yaml.safe_load((search_path.shipped_folder() / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    env = Factory(node["class_path"], node["init_args"])()
    assert type(env) is kind
    assert (env.core_env.max_customers, env.core_env.n_vehicles) == (50, n_vehicles)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


@pytest.mark.slow
def test_the_structured_form_trains_with_networks_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "ppo_auto", "--data.env", "env/structured_vehicle_routing", *TINY]) == 0
    assert list(maze_pl.load_env("here").action_spaces_dict) == [0, 1]
