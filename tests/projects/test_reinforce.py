"""An algorithm outside of the package, one short file named by class path: it trains, resumes exactly, and scales."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
import torch

import maze_pl
from tests.distributed.launch import run
from tests.distributed.rank_report import reports
from tests.exact.comparison import comparable, differences, without_times

PROJECT = Path(__file__).with_name("reinforce")
N_EPOCHS = 6


def fit(folder: Path, *options: str) -> None:
    run([sys.executable, "-m", "maze_pl", "fit", *options], folders=[folder], paths=[PROJECT])


def start(folder: Path, *options: str) -> None:
    fit(folder, "--config", str(PROJECT / "reinforce_cartpole.yaml"), "--run_dir", "here", *options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    start(folder, "--trainer.max_epochs", str(N_EPOCHS))
    return folder / "here"


def test_the_algorithm_fits_on_a_page() -> None:
    lines = (PROJECT / "reinforce.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


@pytest.mark.slow
def test_it_trains_cartpole(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (whole / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    returns = [float(row["eval_BaseEnvEvents/reward/mean"]) for row in rows]
    assert len(rows) == N_EPOCHS
    assert float(rows[0]["train_BaseEnvEvents/reward/mean"]) < 100
    assert returns[-1] >= 200, returns
    assert float(rows[-1]["train_ActorCriticEvents/policy_entropy/substep_0"]) < 0.69
    monkeypatch.syspath_prepend(str(PROJECT))
    agent, env = maze_pl.load(whole, trust=True), maze_pl.load_env(whole)
    assert type(agent).__name__ == "Reinforce"
    observation, _ = env.reset(seed=0)
    assert env.step(agent.act(observation))[1] == 1.0


@pytest.mark.slow
@pytest.mark.long
def test_three_epochs_and_three_more_in_a_new_process_are_six(whole: Path, tmp_path: Path) -> None:
    start(tmp_path, "--trainer.max_epochs", str(N_EPOCHS // 2))
    last = tmp_path / "here" / "checkpoints" / "last.ckpt"
    half = comparable(last)
    fit(tmp_path, "--resume", "here", "--trust", "--trainer.max_epochs", str(N_EPOCHS))
    resumed, uninterrupted = comparable(last), comparable(whole / "checkpoints" / "last.ckpt")
    assert (half["epoch"], resumed["epoch"]) == (N_EPOCHS // 2 - 1, N_EPOCHS - 1)
    assert differences(half["state_dict"], resumed["state_dict"]) != []
    assert differences(without_times(uninterrupted), without_times(resumed)) == []


@pytest.mark.slow
@pytest.mark.long
def test_two_ranks_end_with_the_same_parameters(tmp_path: Path) -> None:
    report = f'{{"class_path": "tests.distributed.rank_report.RankReport", "init_args": {{"folder": "{tmp_path}"}}}}'
    start(
        tmp_path,
        *("--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.max_epochs", "2"),
        *("--data.n_envs", "4", f"--trainer.callbacks+={report}"),
    )
    first, second = reports(tmp_path)
    assert differences(first["state_dict"], second["state_dict"]) == []
    assert differences(first["statistics"], second["statistics"]) == []
    assert first["env_steps"] == 2 * 10 * 800
    assert first["global_step"] == 2 * 10
    assert not set(first["seen"]) & set(second["seen"])
    last = torch.load(tmp_path / "here" / "checkpoints" / "last.ckpt", weights_only=True)
    assert differences(last["state_dict"], first["state_dict"]) == []
