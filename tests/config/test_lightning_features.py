"""Features of Lightning from the command line: what works has its effect, what does not is refused with a remedy."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from pytorch_lightning.callbacks import device_stats_monitor

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config.lightning_features import refuse_unsuitable

FIT = [
    *("fit", "--config", "ppo_cartpole", "--trainer.max_epochs", "2", "--data.epoch_length", "2", "--data.n_envs", "2"),
    *("--data.n_rollout_steps", "50", "--data.evaluators", '{"eval": {"n_episodes": 1}}', "--run_dir", "run"),
]
CALLBACKS, LOGGERS = "pytorch_lightning.callbacks", "pytorch_lightning.loggers"
CHECKPOINTS = ["checkpoints/best.ckpt", "checkpoints/last.ckpt"]


def component(class_path: str, **init_args: Any) -> str:
    return json.dumps({"class_path": class_path, "init_args": init_args})


def callback(name: str, **init_args: Any) -> list[str]:
    return ["--trainer.callbacks", f"[{component(f'{CALLBACKS}.{name}', **init_args)}]"]


def logger(name: str, **init_args: Any) -> list[str]:
    return ["--trainer.logger", component(f"{LOGGERS}.{name}", **init_args)]


REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "gradient_clip_val": (["--trainer.gradient_clip_val", "0.5"], ["gradient_clip_val=0.5", "model.max_grad_norm"]),
    "gradient_clip_algorithm": (["--trainer.gradient_clip_algorithm", "value"], ["model.max_grad_norm"]),
    "accumulate_grad_batches": (["--trainer.accumulate_grad_batches", "2"], ["model.batch_size"]),
    "barebones": (["--trainer.barebones", "true"], ["barebones=True", "--trainer.logger false"]),
    "AsyncCheckpointIO": (
        ["--trainer.plugins", "pytorch_lightning.plugins.io.AsyncCheckpointIO"],
        ["AsyncCheckpointIO", "last_checkpoint.every_n_epochs"],
    ),
    "GradientAccumulationScheduler": (
        callback("GradientAccumulationScheduler", scheduling={1: 2}),
        ["GradientAccumulationScheduler", "model.batch_size"],
    ),
    "BatchSizeFinder": (callback("BatchSizeFinder"), ["BatchSizeFinder", "model.batch_size"]),
    "LearningRateFinder": (callback("LearningRateFinder"), ["LearningRateFinder", "model.lr"]),
    "StochasticWeightAveraging": (
        callback("StochasticWeightAveraging", swa_lrs=1e-3),
        ["StochasticWeightAveraging", "EMAWeightAveraging"],
    ),
    "ModelCheckpoint": (
        callback("ModelCheckpoint", train_time_interval="0:10:00"),
        ["ModelCheckpoint(train_time_interval=...)", "every_n_epochs"],
    ),
    "EMAWeightAveraging": (
        callback("EMAWeightAveraging", update_every_n_steps=10),
        ["EMAWeightAveraging(update_every_n_steps=10)", "leave it at 1"],
    ),
    "ModelPruning": (
        callback("ModelPruning", pruning_fn="l1_unstructured"),
        ["ModelPruning", "torch.nn.utils.prune"],
    ),
}

WORKS: dict[str, tuple[list[str], list[str]]] = {
    "RichProgressBar": (callback("RichProgressBar"), CHECKPOINTS),
    "TQDMProgressBar": (callback("TQDMProgressBar"), CHECKPOINTS),
    "LearningRateMonitor": (callback("LearningRateMonitor"), CHECKPOINTS),
    "ModelCheckpoint": (
        callback("ModelCheckpoint", monitor="eval/return", mode="max", dirpath="own", filename="own"),
        [*CHECKPOINTS, "../own/own.ckpt"],
    ),
    "EarlyStopping": (callback("EarlyStopping", monitor="eval/return", mode="max"), CHECKPOINTS),
    "Timer": (callback("Timer", duration="00:01:00:00"), CHECKPOINTS),
    "ModelSummary": (callback("ModelSummary"), CHECKPOINTS),
    "CSVLogger": (logger("CSVLogger", save_dir="logged"), [*CHECKPOINTS, "../logged/lightning_logs/version_0"]),
    "TensorBoardLogger": (logger("TensorBoardLogger", save_dir="logged"), [*CHECKPOINTS, "../logged/lightning_logs"]),
    "logger": (["--trainer.logger", "false"], [*CHECKPOINTS, "run.log"]),
    "profiler simple": (["--trainer.profiler", "simple"], CHECKPOINTS),
    "profiler advanced": (["--trainer.profiler", "advanced"], CHECKPOINTS),
    "profiler pytorch": (["--trainer.profiler", "pytorch"], CHECKPOINTS),
    "WeightAveraging": (callback("WeightAveraging"), CHECKPOINTS),
    "WandbLogger": (logger("WandbLogger", save_dir="logged", offline=True), [*CHECKPOINTS, "../logged/wandb"]),
    "benchmark": (["--trainer.benchmark", "true"], CHECKPOINTS),
    "enable_progress_bar": (["--trainer.enable_progress_bar", "true"], CHECKPOINTS),
    "enable_model_summary": (["--trainer.enable_model_summary", "true"], CHECKPOINTS),
    "min_epochs": (["--trainer.min_epochs", "1"], CHECKPOINTS),
    "max_epochs": (["--trainer.max_epochs", "1"], CHECKPOINTS),
    "log_every_n_steps": (["--trainer.log_every_n_steps", "5"], CHECKPOINTS),
    "detect_anomaly": (["--trainer.detect_anomaly", "true"], CHECKPOINTS),
    "deterministic": (["--trainer.deterministic", "true"], CHECKPOINTS),
    "enable_checkpointing": (["--trainer.enable_checkpointing", "false"], ["metrics.csv"]),
    "fast_dev_run": (["--trainer.fast_dev_run", "true"], []),
    "max_steps": (["--trainer.max_steps", "1"], ["checkpoints/last.ckpt"]),
    "max_time": (["--trainer.max_time", "00:01:00:00"], CHECKPOINTS),
    "limit_train_batches": (["--trainer.limit_train_batches", "1"], CHECKPOINTS),
    "limit_val_batches": (["--trainer.limit_val_batches", "0"], ["checkpoints/last.ckpt"]),
    "overfit_batches": (["--trainer.overfit_batches", "1"], CHECKPOINTS),
    "val_check_interval": (["--trainer.val_check_interval", "1"], CHECKPOINTS),
    "val_check_interval by time": (["--trainer.val_check_interval", "00:00:00:00"], CHECKPOINTS),
    "check_val_every_n_epoch": (["--trainer.check_val_every_n_epoch", "2"], CHECKPOINTS),
    "num_sanity_val_steps": (["--trainer.num_sanity_val_steps", "1"], CHECKPOINTS),
    "precision 64-true": (["--trainer.precision", "64-true"], CHECKPOINTS),
    "precision bf16-mixed": (["--trainer.precision", "bf16-mixed"], CHECKPOINTS),
    "precision bf16-true": (["--trainer.precision", "bf16-true"], CHECKPOINTS),
    "reload_dataloaders_every_n_epochs": (["--trainer.reload_dataloaders_every_n_epochs", "1"], CHECKPOINTS),
}

SLOW = {"RichProgressBar", "ModelCheckpoint", "EarlyStopping", "CSVLogger", "WandbLogger", "profiler simple"}
SLOW |= {"max_steps", "WeightAveraging", "detect_anomaly", "fast_dev_run", "limit_val_batches", "val_check_interval"}
SLOW |= {"precision 64-true", "precision bf16-true", "val_check_interval by time"}
"""Features that are not left to the long tests."""

TRIED_ELSEWHERE = {"EMAWeightAveraging", "OnExceptionCheckpoint", "DeviceStatsMonitor"}
TRIED_ELSEWHERE |= {"devices", "strategy", "precision", "profiler"}
VALUES = {"simple", "advanced", "pytorch", "64", "bf16", "ddp", "ddp_spawn"}  # of options in the table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "dryrun")  # Lightning's logger sets it
    yield tmp_path
    torch.use_deterministic_algorithms(False)  # options of the Trainer switch these on for the whole process
    torch.backends.cudnn.benchmark = False
    wandb.finish()  # Lightning leaves that to the end of the process
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_features_are_refused_with_their_replacement(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, parts = REFUSED[name]
    assert main([*FIT, *options]) == 2
    error = capsys.readouterr().err.partition("maze-pl: error: ")[2]
    for part in parts:
        assert part in error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Lightning, about each of these
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in SLOW else pytest.mark.long) for name in WORKS])
def test_supported_features_train_and_leave_their_files(folder: Path, name: str) -> None:
    options, files = WORKS[name]
    assert main([*FIT, *options]) == 0
    missing = [file for file in files if not (folder / "run" / file).exists()]
    assert not missing


@pytest.mark.parametrize("batches", [0, 0.0, 1, 1.0, None])
def test_a_run_that_trains_nothing_says_so(capsys: pytest.CaptureFixture[str], batches: float | None) -> None:
    refuse_unsuitable({"limit_train_batches": batches})
    message = "maze-pl: trainer.limit_train_batches=0: nothing is trained\n"
    assert capsys.readouterr().err == (message if batches == 0 else "")


def test_statistics_of_devices_need_psutil(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_stats_monitor, "_PSUTIL_AVAILABLE", False)
    assert main([*FIT, *callback("DeviceStatsMonitor")]) == 2
    assert "psutil" in capsys.readouterr().err


def test_every_feature_is_in_the_table_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lightning.md").read_text(encoding="utf-8")
    tried = {name.split()[0] for name in (*WORKS, *REFUSED)} | TRIED_ELSEWHERE
    assert not [name for name in tried if f"`{name}" not in page]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert not listed - tried - VALUES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_average_of_weights_is_what_is_evaluated_saved_and_loaded(folder: Path) -> None:
    # With a decay of 1 the average stays what it was after the first rollout, while the weights go on learning.
    average = callback("EMAWeightAveraging", decay=1.0)
    assert main([*FIT, *average, "--trainer.max_epochs", "3", "--model.lr", "1e-2"]) == 0
    with (folder / "run" / "metrics.csv").open(encoding="utf-8") as file:
        returns = {row["eval_BaseEnvEvents/reward/mean"] for row in csv.DictReader(file)}
    assert len(returns) == 1
    last = torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    name = next(name for name in last["state_dict"] if "policy" in name and name.endswith("weight"))
    assert not torch.equal(last["state_dict"][name], last["current_model_state"][name])
    assert torch.equal(maze_pl.load(folder / "run").state_dict()[name], last["state_dict"][name])
    n_steps = 3 * 2 * 2 * 50
    assert last["state_dict"]["_extra_state"] == n_steps
    last["state_dict"]["_extra_state"] = torch.tensor(0)  # as in versions that saved the count of the copy
    torch.save(last, "last.ckpt")
    assert maze_pl.load("last.ckpt").env_steps == n_steps


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_early_stopping_of_lightning_leaves_that_of_maze_pl_as_it_is(folder: Path) -> None:
    patient = callback("EarlyStopping", monitor="eval/return", mode="max", patience=100)
    options = ["--early_stopping.patience", "1", "--model.lr", "1e-12", "--trainer.max_epochs", "9"]
    assert main([*FIT, *patient, *options]) == 0
    last = torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["epoch"] == 1, "the second evaluation has the same result as the first"
    counts = [state["wait_count"] for key, state in last["callbacks"].items() if "EarlyStopping{" in key]
    assert counts == [1, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_with_an_average_of_weights_is_resumed_exactly(folder: Path) -> None:
    average = callback("EMAWeightAveraging", decay=0.9)
    assert main([*FIT[:-1], "whole", *average, "--trainer.max_epochs", "3"]) == 0
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert main([*FIT, *average]) == 0
        assert main(["validate", "run", "--trust"]) == 0
        assert main(["fit", "--resume", "run", "--trust", "--trainer.max_epochs", "3"]) == 0
    assert not [one for one in shown if "WeightAveraging" in str(one.message)]
    whole, resumed = (
        torch.load(folder / run / "checkpoints" / "last.ckpt", weights_only=True) for run in ("whole", "run")
    )
    for state in ("state_dict", "current_model_state"):
        for name, value in whole[state].items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, resumed[state][name]), name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_an_exception_can_be_loaded(folder: Path) -> None:
    (folder / "failing.py").write_text(
        "from pytorch_lightning.callbacks import Callback\n"
        "class Fails(Callback):\n"
        "    def on_train_epoch_end(self, trainer, pl_module):\n"
        "        raise RuntimeError('by intention')\n",
        encoding="utf-8",
    )
    saved = component(f"{CALLBACKS}.OnExceptionCheckpoint", dirpath="saved")
    with pytest.raises(RuntimeError, match="by intention"):
        main([*FIT, "--trainer.callbacks", f'[{saved}, {{"class_path": "failing.Fails"}}]'])
    assert maze_pl.load(folder / "saved" / "on_exception.ckpt").env_steps == 200
