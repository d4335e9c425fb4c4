"""The shipped files of ride hailing, and the smallest row of its table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.envs.ride_hailing import CentralDispatchEnvironment, RideHailingEnvironment, ride_hailing_factory
from maze_pl.envs.ride_hailing.dispatching_rule_policy import DispatchingRulePolicy
from maze_pl.runs.rollout import rollout


@pytest.mark.parametrize(
    ("name", "kind"), [("ride_hailing", RideHailingEnvironment), ("ride_hailing_central", CentralDispatchEnvironment)]
)
def test_group_files_describe_the_documented_environments(name: str, kind: type) -> None:
    node = yaml.safe_load((search_path.shipped_folder() / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    env = Factory(node["class_path"], node["init_args"])()
    assert type(env) is kind
    assert (env.core_env.simulation.n_shifts, env.core_env.simulation.n_nearest) == (16, 6)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize(
    ("arrays", "single"),
    [
        ("RideHailingArrayEnvironment", "ride_hailing_factory"),
        ("CentralDispatchArrayEnvironment", "central_dispatch_factory"),
    ],
)
def test_the_check_finds_both_forms_equal(arrays: str, single: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check"]
    for option, name in {"env": arrays, "same-as": single}.items():
        command += [f"--{option}", f"maze_pl.envs.ride_hailing.{name}", f"--{option}.n_shifts", "4"]
        command += [f"--{option}.shift_hours", "[0.4, 0.6]", f"--{option}.city", "{n_hours: 1.0}"]
    assert main([*command, "--n_steps", "200"]) == 0
    output = capsys.readouterr().out
    assert re.match(r"equal: 20\d acts in 4 environments, ", output)
    assert " 0 episodes" not in output


@pytest.mark.slow
@pytest.mark.long
def test_arrays_train_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--data.n_envs", "3", "--data.n_rollout_steps", "40", "--model.batch_size", "60"]
    options += ["--data.epoch_length", "2", "--trainer.max_epochs", "1", "--data.evaluators", "{eval: {n_episodes: 2}}"]
    arrays = ["--data.env", "maze_pl.envs.ride_hailing.RideHailingArrayEnvironment"]
    weights = []
    for run, env in {"single": [], "arrays": arrays}.items():
        assert main(["fit", "--config", "ppo_ride_hailing", *env, *options, "--run_dir", run]) == 0
        weights.append(torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True)["state_dict"])
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


@pytest.mark.slow
def test_repositioning_earns_more_than_staying_on_the_same_days() -> None:
    spaces = ride_hailing_factory().action_spaces_dict
    returns = []
    for reposition in (False, True):
        policy = DispatchingRulePolicy(spaces, "nearest", 0.2, reposition, 0.15)
        episodes = rollout(ride_hailing_factory, policy, episodes=4, max_agents={"vehicle": 16})
        returns.append(np.array([one.summary.reward for one in episodes]))
    assert (returns[1] > 1.1 * returns[0]).all()
    assert returns[1].mean() == pytest.approx(1400, abs=150)


@pytest.mark.slow
@pytest.mark.long
def test_the_dispatcher_trains_with_the_same_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--data.env", "env/ride_hailing_central", "--model.networks", "model/ride_hailing_central"]
    options += ["--data.max_agents", "null", "--data.n_envs", "2", "--data.n_rollout_steps", "50"]
    options += ["--model.batch_size", "50", "--data.epoch_length", "1", "--trainer.max_epochs", "1"]
    options += ["--data.evaluators", "{eval: {n_episodes: 2}}", "--run_dir", "here"]
    assert main(["fit", "--config", "ppo_ride_hailing", *options]) == 0
    assert list(maze_pl.load_env("here").action_spaces_dict) == [0]
