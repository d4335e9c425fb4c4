"""Runs that RLlib trains leave what other runs leave, and continue."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from maze_pl.runs.checkpoint_files import read_checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SMALL = [
    *("--model.config.train_batch_size_per_learner", "200", "--model.config.minibatch_size", "100"),
    *("--model.config.num_epochs", "2", "--model.config.num_envs_per_env_runner", "2"),
    *("--data.epoch_length", "1", "--data.evaluators", "{eval: {n_episodes: 2}}"),
]


def rows(run: Path) -> list[dict[str, str]]:
    """The lines of `metrics.csv`."""
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def processes_of(group: int) -> list[str]:
    """Command lines of the processes of a session that are still there."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
        if session == group and words:
            found.append(words)
    return found


def test_a_run_is_logged_played_and_continued_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--config", "rllib_ppo_cartpole", *SMALL]
    assert main(["rllib", *words, "--run_dir", "here", "--trainer.max_epochs", "2"]) == 0
    table = capsys.readouterr().out
    for name in ("train BaseEnvEvents", "train RLlibEvents", "eval BaseEnvEvents", "vf_loss", "-> new best"):
        assert name in table
    run = Path("here")
    names = set(rows(run)[-1]) | set(rows(run)[0])
    assert {"train_BaseEnvEvents/reward/mean", "eval_BaseEnvEvents/reward/mean"} <= names
    assert any(name.startswith("train_RLlibEvents/policy_loss") for name in names)
    before = read_checkpoint(run / "checkpoints/last.ckpt")
    assert main(["rllib", "--resume", "here", "--trainer.max_epochs", "3"]) == 0
    after = read_checkpoint(run / "checkpoints/last.ckpt")
    states = [checkpoint["maze_pl"]["ranks"][0]["further"]["rllib"] for checkpoint in (before, after)]
    assert 400 <= states[0]["rllib_steps"] < 500
    assert 600 <= states[1]["rllib_steps"] < 700
    optimizers = [next(iter(state["learner"]["optimizer"].values()))["state"]["state"] for state in states]
    steps = [float(next(iter(one.values()))["step"]) for one in optimizers]
    assert steps[0] > 0
    assert steps[1] == pytest.approx(1.5 * steps[0], rel=0.1)
    agent = maze_pl.load(run / "checkpoints/last.ckpt")
    assert isinstance(agent, maze_pl.rllib.RLlibPPO)
    weights: dict[str, Any] = {}
    for name, value in states[1]["learner"]["rl_module"]["default_policy"].items():
        weights[name.removeprefix("trained.")] = value
    from maze_pl.rllib.step_networks import trained_part

    for name, value in trained_part(agent.networks, 0).state_dict().items():
        torch.testing.assert_close(value, torch.as_tensor(weights[name]), rtol=0, atol=0)
    options = ["--n_episodes", "2", "--max_steps", "20", "--runner", "sequential"]
    assert main(["rollout", "here", *options]) == 0
    assert main(["export", "here", "--to", "agent.bundle", "--episodes", "1", "--max_steps", "20"]) == 0


@pytest.mark.long
def test_several_agents_of_a_sub_step_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--config", "rllib_ppo_cartpole", *SMALL, "--data.env", "tests.structured.team.make_env"]
    assert main(["rllib", *words, "--run_dir", "here", "--trainer.max_epochs", "1"]) == 0
    agent = maze_pl.load("here")
    assert isinstance(agent, maze_pl.rllib.RLlibPPO)
    names = {name for row in rows(Path("here")) for name, value in row.items() if value}
    assert "eval_BaseEnvEvents/reward/mean" in names
    assert any(name.startswith("train_RLlibEvents/policy_loss") for name in names)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command(number: signal.Signals, tmp_path: Path) -> None:
    words = ["rllib", "--config", "rllib_ppo_cartpole", *SMALL, "--model.config.num_env_runners", "1"]
    command = [sys.executable, "-m", "maze_pl", *words, "--run_dir", str(tmp_path / "run")]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "new best" in line:
            break
    assert any("raylet" in words for words in processes_of(process.pid))
    os.kill(process.pid, number)
    process.stdout.read()
    status = process.wait(timeout=60)
    assert status == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    deadline = time.monotonic() + 90  # agents of Ray look for its raylet from time to time
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_of(process.pid) == []


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["appo", "dqn"])
def test_other_algorithms_train_and_continue(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--config", f"rllib_{algorithm}_cartpole", "--data.epoch_length", "1"]
    words += [
        "--model.config.min_sample_timesteps_per_iteration",
        "300",
        "--data.evaluators",
        "{eval: {n_episodes: 2}}",
    ]
    words += ["--model.config.num_steps_sampled_before_learning_starts", "100"] if algorithm == "dqn" else []
    assert main(["rllib", *words, "--run_dir", "here", "--trainer.max_epochs", "1"]) == 0
    assert main(["rllib", "--resume", "here", "--trainer.max_epochs", "2"]) == 0
    steps = sorted({int(row["step"]) for row in rows(Path("here"))})
    assert len(steps) == 2
    assert steps[1] >= steps[0] + 300


@pytest.mark.long
def test_running_statistics_of_wrappers_are_those_of_all_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrappers = "[{class_path: maze_pl.envs.wrappers.ReturnNormalizationRewardWrapper}]"
    words = ["--config", "rllib_ppo_cartpole", *SMALL, "--model.config.num_env_runners", "1"]
    assert main(["rllib", *words, "--run_dir", "here", "--trainer.max_epochs", "2", "--data.wrappers", wrappers]) == 0
    checkpoint = read_checkpoint(Path("here/checkpoints/last.ckpt"))
    (statistics,) = checkpoint["RLlibDataModule"]["shared"].values()
    assert statistics["base"][0] == 1 + int(rows(Path("here"))[-1]["step"])  # the number of returns, and one of 0
    assert statistics["delta"][0] == 0
    assert main(["rllib", "--resume", "here", "--trainer.max_epochs", "3"]) == 0
