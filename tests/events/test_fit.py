"""What a user's environment shows of itself in real runs, with nothing registered anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from maze_pl import tensorboard_to_pandas
from maze_pl.__main__ import main
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from tests.events.depot import N_STEPS
from tests.run_directory import wandb_file

pytestmark = pytest.mark.filterwarnings("ignore")

HERE = "tests.events.depot"
STORAGE = {"class_path": f"{HERE}.StorageReward"}
SALES = {"class_path": f"{HERE}.SalesReward", "init_args": {"price": 2.0}}
LOGS = {"class_path": "maze_pl.envs.wrappers.EventLogsWrapper"}
SMALL = [
    *("--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "20", "--model.batch_size", "10"),
    *("--data.evaluators", '{"eval": {"n_episodes": 3}}', "--model.capture", "off", "--model.networks.policy.networks"),
    json.dumps(
        [{"class_path": "maze_pl.perception.FlattenConcatPolicyNet", "init_args": {"hidden_units": [4]}}],
    ),
]


def environment(reward_aggregator: dict[str, Any]) -> list[str]:
    node = {"class_path": f"{HERE}.make_depot", "init_args": {"reward_aggregator": reward_aggregator}}
    return ["--data.env", json.dumps(node)]


Fit = Callable[..., int]


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")  # so that what the run sets is taken back

    def run(*options: str, env: dict[str, Any] = SALES, epochs: int = 1) -> int:
        command = ["fit", "--config", "ppo_cartpole", *environment(env), *SMALL, "--trainer.max_epochs", str(epochs)]
        return main([*command, "--run_dir", "run", *options])

    return run


NAMES = {
    "InventoryEvents/piece_discarded/mean_episode_total",
    "InventoryEvents/pieces_in_inventory/step_mean",
    "InventoryEvents/pieces_in_inventory/step_max",
    "SalesEvents/sold/ann",
    "SalesEvents/sold/bob",
    "SalesEvents/sold/total/ann",
    "SalesEvents/sold/total/bob",
    *(f"BaseEnvEvents/kpi/{name}/{kpi}" for name in ("mean", "std", "min", "max") for kpi in ("level", "tiny")),
}


@pytest.mark.slow
def test_topics_and_kpis_of_the_user_are_in_the_table_and_in_the_event_files(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("--data.vectorization", "subprocess") == 0
    table = capsys.readouterr().out
    frame = tensorboard_to_pandas("run")
    for stage in ("train", "eval"):
        assert {f"{stage}_{name}" for name in NAMES} <= set(frame.columns)
        assert f"{stage} InventoryEvents" in table
    values = frame.iloc[-1]
    assert values["eval_BaseEnvEvents/kpi/mean/level"] == pytest.approx(
        values["eval_InventoryEvents/pieces_in_inventory/step_mean"]
    )
    assert values["eval_InventoryEvents/pieces_in_inventory/step_max"] >= values["eval_BaseEnvEvents/kpi/max/level"]
    tiny = [line for line in table.splitlines() if "mean/tiny" in line]
    assert len(tiny) == 2
    assert all(float(line.rpartition("|")[2]) > 0 for line in tiny)


@pytest.mark.slow
@pytest.mark.long
def test_topics_and_kpis_of_the_user_are_in_weights_and_biases(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert fit("--wandb", "--data.vectorization", "subprocess") == 0
    (file,) = Path("run").glob("wandb/offline-run-*/*.wandb")
    logged = {name for row in wandb_file.read_finished(file).history for name in row}
    numbers = {name for name in NAMES if name not in ("SalesEvents/sold/ann", "SalesEvents/sold/bob")}
    assert {f"{stage}_{name}" for name in numbers for stage in ("train", "eval")} <= logged


@pytest.mark.slow
@pytest.mark.parametrize("vectorization", ["sequential", pytest.param("subprocess", marks=pytest.mark.slow)])
def test_shares_of_a_combined_reward_are_logged_and_add_up(fit: Fit, vectorization: str) -> None:
    parts = {"aggregators": {"sales": SALES, "storage": STORAGE}, "weights": {"storage": 0.5}}
    combined = {"class_path": "maze_pl.envs.WeightedRewardAggregator", "init_args": parts}
    assert fit("--data.vectorization", vectorization, env=combined) == 0
    frame = tensorboard_to_pandas("run").iloc[-1]
    for stage in ("train", "eval"):
        shares = frame[[f"{stage}_RewardShareEvents/share/mean_episode_total/{name}" for name in parts["aggregators"]]]
        assert shares.sum() == pytest.approx(frame[f"{stage}_BaseEnvEvents/reward/mean"], rel=1e-5)
        assert shares.iloc[0] > 0 > shares.iloc[1]
        sold = frame[[f"{stage}_SalesEvents/sold/total/{customer}" for customer in ("ann", "bob")]].sum()
        assert shares.iloc[0] * frame[f"{stage}_BaseEnvEvents/reward/episode_count"] == pytest.approx(2 * sold)


def kpis(name: str) -> list[float]:
    return pd.read_csv("run/metrics.csv")[f"eval_BaseEnvEvents/kpi/mean/{name}"].dropna().tolist()


def patient_epochs(values: list[float], mode: str, patience: int) -> int:
    """Epoch after which nothing has improved for so many of them."""
    best, waited = -math.inf, 0
    for epoch, value in enumerate(values if mode == "max" else [-value for value in values], start=1):
        best, waited = max(best, value), 0 if value > best else waited + 1
        if waited == patience:
            return epoch
    return len(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "env", "lr"), [("min", STORAGE, "0.1"), pytest.param("max", SALES, "0.02", marks=pytest.mark.slow)]
)
def test_a_kpi_decides_which_checkpoint_is_best_and_when_training_ends(
    fit: Fit, capsys: pytest.CaptureFixture[str], mode: str, env: dict[str, Any], lr: str
) -> None:
    monitored = ["--best_checkpoint.monitor", "eval/kpi/tiny", "--best_checkpoint.mode", mode]
    options = [*monitored, "--early_stopping.patience", "3", "--model.lr", lr, "--seed_everything", "1"]
    assert fit(*options, env=env, epochs=30) == 0
    values = kpis("tiny")
    assert len(values) == patient_epochs(values, mode, 3) < 30
    best = torch.load("run/checkpoints/best.ckpt", weights_only=True)
    index = int(np.argmax(values) if mode == "max" else np.argmin(values))
    assert best["epoch"] == index
    said = [line for line in capsys.readouterr().out.splitlines() if "new best eval/kpi/tiny" in line]
    assert float(said[-1].split()[-1].rstrip("!")) == pytest.approx(values[index], rel=1e-2)
    assert 0 < index < len(values) - 1


@pytest.mark.slow
def test_patience_counts_evaluations_where_these_are_rarer_than_epochs(fit: Fit) -> None:
    rare = ["--trainer.check_val_every_n_epoch", "2", "--early_stopping.monitor", "eval/kpi/level"]
    assert fit(*rare, "--early_stopping.mode", "min", "--early_stopping.patience", "2", epochs=40) == 0
    values = kpis("level")
    assert len(values) == patient_epochs(values, "min", 2) < 20
    assert torch.load("run/checkpoints/last.ckpt", weights_only=True)["epoch"] + 1 == 2 * len(values)


@pytest.mark.parametrize("option", ["early_stopping", pytest.param("best_checkpoint", marks=pytest.mark.slow)])
def test_an_unknown_kpi_is_refused_with_those_that_there_are(
    fit: Fit, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert fit(f"--{option}.monitor", "eval/kpi/levels") == 2
    said, error = capsys.readouterr()
    found = "the first episodes of training have the KPIs level, tiny; did you mean level?"
    early = f"(monitor='eval/kpi/levels'): {found}"
    assert early in said.partition("epoch 1 |")[0]
    assert Path("run", "checkpoints", "last.ckpt").is_file()
    message = error.partition("maze-pl: error: ")[2]
    assert "monitor='eval/kpi/levels'" in message
    assert "they have eval/kpi/level, eval/kpi/tiny, eval/return" in message
    assert "did you mean eval/kpi/level" in message
    assert len(message.splitlines()) == 1


def test_an_undeclared_kpi_is_refused_before_the_first_rollout(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    declared = ["--data.env", json.dumps({"class_path": f"{HERE}.make_declared_depot"})]
    assert fit(*declared, "--best_checkpoint.monitor", "eval/kpi/levels") == 2
    printed, error = capsys.readouterr()
    message = error.partition("maze-pl: error: ")[2].strip()
    assert message == (
        "BestCheckpoint(monitor='eval/kpi/levels'): the environment has the KPIs level, tiny; did you mean level?"
    )
    assert "epoch 1 |" not in printed
    assert not list(Path("run").rglob("*.ckpt"))


def test_a_declared_kpi_is_monitored(fit: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    declared = ["--data.env", json.dumps({"class_path": f"{HERE}.make_declared_depot"})]
    assert fit(*declared, "--best_checkpoint.monitor", "eval/kpi/level") == 0
    assert "new best eval/kpi/level" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("vectorization", ["sequential", "subprocess"])
def test_event_logs_lie_in_the_run_directory_and_hold_every_event(fit: Fit, vectorization: str) -> None:
    own = {**LOGS, "init_args": {"writer": {"class_path": f"{HERE}.LinesWriter"}}}
    assert fit("--data.vectorization", vectorization, "--data.wrappers", json.dumps([LOGS, own])) == 0
    names = ["BaseEnvEvents.kpi", "BaseEnvEvents.reward", "InventoryEvents.pieces_in_inventory", "SalesEvents.sold"]
    frames = {path.stem: pd.read_csv(path) for path in Path("run", "event_logs").iterdir()}
    assert set(names) <= set(frames) <= {*names, "InventoryEvents.piece_discarded"}
    rewards, sold = frames["BaseEnvEvents.reward"], frames["SalesEvents.sold"]
    n_evaluations = 3  # at the end of the epoch, and of the last and the best policy
    assert len(rewards) == 2 * 2 * 20 + n_evaluations * 3 * N_STEPS
    assert len(sold) == 2 * len(rewards)
    levels = frames["BaseEnvEvents.kpi"].query("name == 'level'")
    assert len(levels) == len(rewards) / N_STEPS
    step = ["episode_id", "episode_started", "env_time"]
    assert rewards.groupby(step).size().max() == 1
    assert rewards.set_index(step)["value"].sort_index().equals(2.0 * sold.groupby(step)["amount"].sum())
    lines = [line for path in Path("run", "lines").iterdir() for line in path.read_text().splitlines()]
    assert len(lines) == sum(map(len, frames.values()))
    assert not Path("event_logs").exists()


@pytest.mark.slow
def test_event_logs_of_a_resumed_run_are_those_of_one_that_was_not_stopped(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrapped = ["--data.wrappers", json.dumps([LOGS]), "--data.n_rollout_steps", "18", "--model.batch_size", "12"]
    wrapped += ["--data.evaluators", "{}"]  # the end of a run has some of its own
    assert fit(*wrapped, epochs=2) == 0
    Path("run").rename("whole")
    assert fit(*wrapped, epochs=1) == 0
    assert main(["fit", "--resume", "run", "--trust", "--trainer.max_epochs", "2"]) == 0
    paths = sorted(Path("whole", "event_logs").iterdir())
    assert len(paths) >= 3
    for path in paths:
        whole, resumed = (pd.read_csv(folder / path.name) for folder in (path.parent, Path("run", "event_logs")))
        columns = [name for name in whole.columns if name != "episode_started"]
        whole, resumed = whole[columns], resumed[columns]
        assert whole.sort_values(columns, ignore_index=True).equals(resumed.sort_values(columns, ignore_index=True))
