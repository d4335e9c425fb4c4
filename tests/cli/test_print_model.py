"""`--print_model`: tables of the networks, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from maze_pl.__main__ import main


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_command_shows_the_networks_without_training_or_writing_anything(project: Path) -> None:
    command = [sys.executable, "-m", "maze_pl", "fit", "--config", "ppo_cartpole", "--run_dir", "here", "--print_model"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert not list(project.iterdir())
    lines = result.stdout.splitlines()
    assert lines[0] == "policy: FlattenConcatPolicyNet, 4,610 parameters"
    assert lines[3] == "network (FlattenConcatPolicyNet)|observation (4,)|action (2,)|     4,610|100.0%"
    assert "critic: FlattenConcatStateValueNet, 4,545 parameters" in lines
    assert lines[-1] == "policy, critic: 9,155 parameters"
    assert "epoch" not in result.stdout


WRAPPER = """
import torch


class Steady(torch.nn.Module):
    def __init__(self, torch_policy):
        super().__init__()
        self.torch_policy, self.spec = torch_policy, torch_policy.spec

    def act(self, batch, **options):
        return self.torch_policy.act(batch, **options)
"""


def test_a_policy_within_something_else_is_shown(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "steady.py").write_text(WRAPPER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(project))
    assert main(["fit", "--config", "es_cartpole", "--model.policy_wrapper", "steady.Steady", "--print_model"]) == 0
    assert "policy: FlattenConcatPolicyNet, 4,610 parameters" in capsys.readouterr().out


def test_any_option_of_fit_counts_and_each_step_has_its_table(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--print_model", "--wandb", "--model.networks", "model/flatten_concat"]
    assert main(["fit", "--config", "ppo_cutting_2d_struct", *options]) == 0
    output = capsys.readouterr().out
    assert "network (FlattenConcatPolicyNet)" in output
    titles = re.findall(r"^(\w+): (\w+), [\d,]+ parameters$", output, re.MULTILINE)
    assert [name for name, _ in titles] == ["policy_0", "policy_1", "critic"]
    assert not list(project.iterdir())


@pytest.mark.slow
def test_the_networks_of_a_run_are_shown_by_each_command_that_names_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--trainer.max_epochs", "1", "--data.epoch_length", "1", "--data.n_envs", "2", "--data.evaluators", "{}"]
    small += ["--data.n_rollout_steps", "50", "--model.networks", "model/flatten_concat"]
    assert main(["fit", "--config", "ppo_cartpole", "--run_dir", "run", *small]) == 0
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for command in (["validate", "run"], ["fit", "--resume", "run"], ["fit", "--warm-start", "run"]):
        capsys.readouterr()
        assert main([*command, "--print_model"]) == 0
        assert "network (FlattenConcatPolicyNet)" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    assert "print_model: true" not in Path("run", "config.yaml").read_text(encoding="utf-8")


def test_a_model_without_networks_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    model = "pytorch_lightning.demos.boring_classes.BoringModel"
    data = "pytorch_lightning.demos.boring_classes.BoringDataModule"
    assert main(["fit", "--model", model, "--data", data, "--print_model"]) == 2
    assert "--print_model shows policies and critics" in capsys.readouterr().err
